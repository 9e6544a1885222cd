import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.CommonClientConfigs;
import org.apache.kafka.common.config.SaslConfigs;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.jose4j.jwk.JsonWebKeySet;
import org.jose4j.jwk.RsaJsonWebKey;
import org.jose4j.jwk.RsaJwkGenerator;
import org.jose4j.jws.AlgorithmIdentifiers;
import org.jose4j.jws.JsonWebSignature;
import org.jose4j.jwt.JwtClaims;
import org.jose4j.lang.JoseException;

/** An issuer of JSON Web Tokens: they give clients the users and groups that a test's principal builder gives listeners. */
final class Tokens {
  static final String ISSUER = "https://issuer.example";
  static final String AUDIENCE = "bearlake";

  private static final String URLS_PROPERTY = "org.apache.kafka.sasl.oauthbearer.allowed.urls";
  private static final String GROUP_TYPE = "Group";
  private static final int KEY_BITS = 2048;
  private static final float VALID_MINUTES = 60;

  private final Path folder;
  private final RsaJsonWebKey key;

  /** Writes the public key into `folder`. */
  Tokens(Path folder) throws IOException, JoseException {
    this.folder = folder;
    this.key = RsaJwkGenerator.generateJwk(KEY_BITS);
    key.setKeyId("k");
    key.setAlgorithm(AlgorithmIdentifiers.RSA_USING_SHA256);
    key.setUse("sig");
    Files.writeString(keysFile(), new JsonWebKeySet(List.of(key)).toJson());
  }

  Path keysFile() {
    return folder.resolve("keys.json");
  }

  /** Settings of a client that logs in as `principal`, or as a user who has the group `principal`. */
  Map<String, Object> clientSettings(KafkaPrincipal principal) throws IOException, JoseException {
    Path file = folder.resolve(principal.getPrincipalType() + "-" + principal.getName() + ".jwt");
    Files.writeString(file, token(principal));
    String url = file.toUri().toString();
    allow(url);
    Map<String, Object> settings = new HashMap<>();
    settings.put(CommonClientConfigs.SECURITY_PROTOCOL_CONFIG, "SASL_PLAINTEXT");
    settings.put(SaslConfigs.SASL_MECHANISM, "OAUTHBEARER");
    settings.put(SaslConfigs.SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL, url);
    settings.put(
        SaslConfigs.SASL_JAAS_CONFIG,
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;");
    settings.put(
        SaslConfigs.SASL_LOGIN_CALLBACK_HANDLER_CLASS,
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler");
    return settings;
  }

  private String token(KafkaPrincipal principal) throws JoseException {
    JwtClaims claims = new JwtClaims();
    claims.setIssuer(ISSUER);
    claims.setAudience(AUDIENCE);
    claims.setSubject(principal.getName());
    claims.setIssuedAtToNow();
    claims.setExpirationTimeMinutesInTheFuture(VALID_MINUTES);
    if (principal.getPrincipalType().equals(GROUP_TYPE)) {
      claims.setSubject("member-of-" + principal.getName());
      claims.setStringListClaim("groups", principal.getName());
    }
    JsonWebSignature signature = new JsonWebSignature();
    signature.setPayload(claims.toJson());
    signature.setKey(key.getPrivateKey());
    signature.setKeyIdHeaderValue(key.getKeyId());
    signature.setAlgorithmHeaderValue(AlgorithmIdentifiers.RSA_USING_SHA256);
    return signature.getCompactSerialization();
  }

  /** Kafka's client reads tokens only from places that this property of the process names. */
  private static void allow(String url) {
    String allowed = System.getProperty(URLS_PROPERTY);
    System.setProperty(URLS_PROPERTY, allowed == null ? url : allowed + "," + url);
  }
}
