import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DeleteAclsResult.FilterResult;
import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.authorizer.AuthorizerServerInfo;

/** The authorizer that tests expect inside a broker: it creates, deletes and lists the server's rules through Kafka's API. */
final class RulesByAdmin implements Authorizer {
  private static final int TIMEOUT_S = 30;

  private final Admin admin;

  /** The caller closes `admin`, a super user. */
  RulesByAdmin(Admin admin) {
    this.admin = admin;
  }

  @Override
  public List<? extends CompletionStage<AclCreateResult>> createAcls(
      AuthorizableRequestContext context, List<AclBinding> rules) {
    var created = admin.createAcls(rules).values();
    return rules.stream().map(rule -> created.get(rule).toCompletionStage().handle(RulesByAdmin::created)).toList();
  }

  private static AclCreateResult created(Void nothing, Throwable error) {
    return error == null ? AclCreateResult.SUCCESS : new AclCreateResult(reason(error));
  }

  @Override
  public List<? extends CompletionStage<AclDeleteResult>> deleteAcls(
      AuthorizableRequestContext context, List<AclBindingFilter> filters) {
    var deleted = admin.deleteAcls(filters).values();
    List<CompletionStage<AclDeleteResult>> results = new ArrayList<>();
    for (AclBindingFilter filter : filters) {
      results.add(
          deleted.get(filter).toCompletionStage()
              .handle((rules, error) -> error == null ? deleted(rules.values()) : new AclDeleteResult(reason(error))));
    }
    return results;
  }

  private static AclDeleteResult deleted(List<FilterResult> rules) {
    Collection<AclDeleteResult.AclBindingDeleteResult> results = new ArrayList<>();
    rules.forEach(rule -> results.add(new AclDeleteResult.AclBindingDeleteResult(rule.binding(), rule.exception())));
    return new AclDeleteResult(results);
  }

  private static ApiException reason(Throwable error) {
    return error instanceof ApiException known ? known : new ApiException(error);
  }

  @Override
  public Iterable<AclBinding> acls(AclBindingFilter filter) {
    try {
      return admin.describeAcls(filter).values().get(TIMEOUT_S, TimeUnit.SECONDS);
    } catch (InterruptedException | ExecutionException | TimeoutException error) {
      throw new IllegalStateException("the server does not list its access rules", error);
    }
  }

  @Override
  public List<AuthorizationResult> authorize(AuthorizableRequestContext context, List<Action> actions) {
    throw new UnsupportedOperationException("the server decides");
  }

  @Override
  public Map<Endpoint, ? extends CompletionStage<Void>> start(AuthorizerServerInfo server) {
    throw new UnsupportedOperationException("the server is started without it");
  }

  @Override
  public void configure(Map<String, ?> settings) {}

  @Override
  public void close() {}
}
