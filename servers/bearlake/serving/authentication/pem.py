"""The subject of a certificate in PEM, for libraries that verify a client's certificate and hand it over unparsed (gRPC).

Source: RFC 5280 section 4.1.2.6; the names of attributes are OpenSSL's, as `ssl.SSLObject.getpeercert` has them.
"""

from cryptography import x509
from cryptography.x509.oid import NameOID

from bearlake.errors import Denied
from bearlake.serving.authentication.certificates import Subject

_LONG_NAMES = {
    NameOID.COMMON_NAME: "commonName",
    NameOID.COUNTRY_NAME: "countryName",
    NameOID.LOCALITY_NAME: "localityName",
    NameOID.STATE_OR_PROVINCE_NAME: "stateOrProvinceName",
    NameOID.ORGANIZATION_NAME: "organizationName",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "organizationalUnitName",
    NameOID.STREET_ADDRESS: "streetAddress",
    NameOID.DOMAIN_COMPONENT: "domainComponent",
    NameOID.USER_ID: "userId",
    NameOID.EMAIL_ADDRESS: "emailAddress",
    NameOID.SERIAL_NUMBER: "serialNumber",
    NameOID.SURNAME: "surname",
    NameOID.GIVEN_NAME: "givenName",
    NameOID.TITLE: "title",
}


def subject_of(certificate: bytes) -> Subject:
    """Return the subject of a PEM certificate, as `getpeercert` returns it. Raises `Denied` if it cannot be parsed."""
    try:
        names = x509.load_pem_x509_certificate(certificate).subject.rdns
        return tuple(
            tuple((_LONG_NAMES.get(part.oid, part.oid.dotted_string), str(part.value)) for part in name)
            for name in names
        )
    except ValueError as error:
        raise Denied(f"the client's certificate cannot be parsed: {error}") from error
