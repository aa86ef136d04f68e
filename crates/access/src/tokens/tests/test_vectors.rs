//! Tokens that another program made, with keys that another program made.

use expect_test::expect;

use super::*;

const EC: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEbO2StnAKgRPYnBhezC3lG3QTvKhI
4WVwea4/0f79KwuCAPFRRsrrtpnj6vWbtukILoTiLaeM8LPidlwmnbgN6Q==
-----END PUBLIC KEY-----
";

const RSA: &str = "-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAwkE1DXwhe9XDOlSLfIOZ
jgvLZQ0tozHid674SY14iF19rPCaX78il9M+r3WYncp0kThR/NTUgWS8Oe/RFl1d
r43jCBn+lHYgPsxfdGBky8hPCOagli9kONfZP+R2q3P8cscg9b1HsLB2j1hK7/wT
nujugxEOKE/p56PUjear0G6Fy2Se51h19AF6Ro0K/jWJZQQ2l/Gh/JOgaryOdBvr
I9EqNUiswL3MWjkzXtMQYp5HF76DE/6MIL77rSgbrY/G13E2KXnUK1YdsUO5KkxS
4wPnPVfR6sGcNHmOfFFaTzhGgxv/DdeJPiheP+X568c5dnr9DadIQ5p7IEnfCrBh
uQIDAQAB
-----END PUBLIC KEY-----
";

const PAYLOAD: &str = "eyJhdWQiOlsiaHR0cHM6Ly9rdWJlcm5ldGVzLmRlZmF1bHQuc3ZjIl0sImV4cCI6NDEwMjQ0NDgwMCwiaWF0IjoxNzY3MjI1\
NjAwLCJpc3MiOiJodHRwczovL2t1YmVybmV0ZXMuZGVmYXVsdC5zdmMiLCJqdGkiOiJhNmE3ZDBiYi03YjBjLTRkNGUtOWQ4MC0wYTdhMWQxYjZiNWYiLCJr\
dWJlcm5ldGVzLmlvIjp7Im5hbWVzcGFjZSI6ImRldiIsIm5vZGUiOnsibmFtZSI6Im4xIiwidWlkIjoibm9kZS11aWQifSwicG9kIjp7Im5hbWUiOiJwMSIs\
InVpZCI6InBvZC11aWQifSwic2VydmljZWFjY291bnQiOnsibmFtZSI6ImJ1aWxkZXIiLCJ1aWQiOiJzYS11aWQifX0sIm5iZiI6MTc2NzIyNTYwMCwic3Vi\
Ijoic3lzdGVtOnNlcnZpY2VhY2NvdW50OmRldjpidWlsZGVyIn0";

const EC_HEADER: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6IjRRTmtBa2JUOHkxSDlKWkQ4MndlTGk1YjBhYUhCakVfakxYcHVSbFctR1EifQ";
const EC_SIGNATURE: &str = "hd8_Qzi9yGjNlhINNr-PeyV9VitB39LmRMZJLJjwwCNmo7DRPeGi_cYznWDcEC9aLUQcPh8QSNVXASseUtEoYw";

const RSA_HEADER: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6InZrb2NNR1Bfa05SRHBvVklrcDlpNGxseHNYZklMWk94Y25RWEctN3RUckEifQ";
const RSA_SIGNATURE: &str = "pphTr4aZcVLthirwhT0COPK1jgOB8db3BFn7Bf7JRS8gQF-mve_R03lQp7OFjMKepYeid-qtWOSWay3WyzVAtposmC-\
wNJTCMpJA-2JnoFPo259b1CDxnfwIYwWJeCY-b6nrkpI6PMVkwagB5ALIHPSlhXIJFoaVFyaUR26xCylhJYDQMwuGMJYSOWk4pXBZxV1FSSfRKQvhUfyBO1tHEiyg\
GkKQoT1AuwTMDdaNRrzef9zPqSvzUzvHFqJEWwzpJ-GrTnPc7grG67AEu-ONnIk0U9XWpPC8YMnEal0Q0Hso28dGI2ucS0NsMGyL2if2jaP8QU6OKuARBE5j00C-\
Lw";

#[test]
fn foreign_ec_and_rsa_tokens_verify() {
    let keys = VerifyingKey::all_from_pem(&format!("{EC}{RSA}")).unwrap();
    let audiences = [ISSUER.to_owned()];
    let verifier = TokenVerifier::new(audiences.to_vec(), audiences.to_vec(), keys);
    for (header, signature) in [(EC_HEADER, EC_SIGNATURE), (RSA_HEADER, RSA_SIGNATURE)] {
        let token = format!("{header}.{PAYLOAD}.{signature}");
        let found =
            verifier.authenticate(&token, &audiences, &FakeBoundObjects::new(), timestamp(NOW)).unwrap().unwrap();
        assert_eq!(found.audiences, audiences);
        expect![[r#"
            User {
                name: "system:serviceaccount:dev:builder",
                uid: "sa-uid",
                groups: [
                    "system:serviceaccounts",
                    "system:serviceaccounts:dev",
                    "system:authenticated",
                ],
                extra: {
                    "authentication.kubernetes.io/credential-id": [
                        "JTI=a6a7d0bb-7b0c-4d4e-9d80-0a7a1d1b6b5f",
                    ],
                    "authentication.kubernetes.io/node-name": [
                        "n1",
                    ],
                    "authentication.kubernetes.io/node-uid": [
                        "node-uid",
                    ],
                    "authentication.kubernetes.io/pod-name": [
                        "p1",
                    ],
                    "authentication.kubernetes.io/pod-uid": [
                        "pod-uid",
                    ],
                },
            }
        "#]]
        .assert_debug_eq(&found.user);
    }
}

#[test]
fn openid_documents_list_keys_as_jwks() {
    let keys = VerifyingKey::all_from_pem(&format!("{EC}{RSA}")).unwrap();
    let documents =
        openid::OpenIdDocuments::new(ISSUER, openid::JwksLocation::ThisServer("10.0.0.1:6443"), &keys).unwrap();
    expect![[r#"{"issuer":"https://kubernetes.default.svc","jwks_uri":"https://10.0.0.1:6443/openid/v1/jwks","response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["ES256","RS256"]}"#]]
        .assert_eq(std::str::from_utf8(&documents.configuration).unwrap());
    expect![[r#"{"keys":[{"use":"sig","kty":"EC","kid":"4QNkAkbT8y1H9JZD82weLi5b0aaHBjE_jLXpuRlW-GQ","crv":"P-256","alg":"ES256","x":"bO2StnAKgRPYnBhezC3lG3QTvKhI4WVwea4_0f79Kws","y":"ggDxUUbK67aZ4-r1m7bpCC6E4i2njPCz4nZcJp24Dek"},{"use":"sig","kty":"RSA","kid":"vkocMGP_kNRDpoVIkp9i4llxsXfILZOxcnQXG-7tTrA","alg":"RS256","n":"wkE1DXwhe9XDOlSLfIOZjgvLZQ0tozHid674SY14iF19rPCaX78il9M-r3WYncp0kThR_NTUgWS8Oe_RFl1dr43jCBn-lHYgPsxfdGBky8hPCOagli9kONfZP-R2q3P8cscg9b1HsLB2j1hK7_wTnujugxEOKE_p56PUjear0G6Fy2Se51h19AF6Ro0K_jWJZQQ2l_Gh_JOgaryOdBvrI9EqNUiswL3MWjkzXtMQYp5HF76DE_6MIL77rSgbrY_G13E2KXnUK1YdsUO5KkxS4wPnPVfR6sGcNHmOfFFaTzhGgxv_DdeJPiheP-X568c5dnr9DadIQ5p7IEnfCrBhuQ","e":"AQAB"}]}"#]]
        .assert_eq(std::str::from_utf8(&documents.jwks).unwrap());
}

#[test]
fn openid_documents_require_https_issuer() {
    use openid::{JwksLocation, OpenIdDocuments};
    let keys = VerifyingKey::all_from_pem(EC).unwrap();
    let here = JwksLocation::ThisServer("a:1");
    let error = |issuer: &str, at: JwksLocation<'_>, keys: &[VerifyingKey]| {
        OpenIdDocuments::new(issuer, at, keys).unwrap_err().to_string()
    };
    assert_eq!(error("kubernetes", here, &keys), "issuer URL must use https scheme, got: kubernetes");
    assert_eq!(error("https://a?b=c", here, &keys), "issuer URL may not include a query, got: https://a?b=c");
    assert_eq!(error("https://a#b", here, &keys), "issuer URL may not include a fragment, got: https://a#b");
    assert_eq!(error(ISSUER, here, &[]), "no keys provided for validating keyset");
    assert_eq!(
        error(ISSUER, JwksLocation::Url("http://a/keys"), &keys),
        "jwksURI requires https scheme, parsed as: http://a/keys"
    );
    let elsewhere = OpenIdDocuments::new(ISSUER, JwksLocation::Url("https://keys.example/x"), &keys).unwrap();
    assert!(String::from_utf8(elsewhere.configuration).unwrap().contains(r#""jwks_uri":"https://keys.example/x""#));
}
