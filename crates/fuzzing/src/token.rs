//! Service account tokens: JSON Web Tokens, and the requests that they are issued for.

use std::borrow::Cow;
use std::sync::OnceLock;

use access::tokens::{
    BoundObjectKind, BoundObjects, Claims, SigningKey, TokenIssuer, TokenRequest, TokenVerifier, VerifyingKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;

pub(crate) const SEEDS: &[&str] = &[
    "=.=.=",
    r#"{"alg":"none"}.=."#,
    r#"{"alg":"HS256","kid":""}.=.="#,
    r#"{"alg":"ES256","crit":["b64"],"b64":false}.=.="#,
    r#"=.{"iss":"https://issuer","sub":"system:serviceaccount:dev:root","aud":["https://issuer"],"exp":4102444800,"nbf":1,"iat":1.5,"jti":"j","kubernetes.io":{"namespace":"dev","serviceaccount":{"name":"builder","uid":"u1"},"pod":{"name":"p","uid":"u2"},"node":null,"warnafter":-9223372036854775808}}.="#,
    r#"=.{"iss":"kubernetes/serviceaccount","sub":"s","kubernetes.io/serviceaccount/namespace":"dev"}.="#,
    r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"audiences":["https://issuer","b"],"expirationSeconds":3607,"boundObjectRef":{"kind":"Pod","apiVersion":"v1","name":"p","uid":"u2"}}}"#,
];
pub(crate) const DICTIONARY: &[&str] = &[
    ".",
    "=",
    "==",
    "{",
    "}",
    "\"alg\":\"ES256\"",
    "\"alg\":\"none\"",
    "\"alg\":\"RS256\"",
    "\"kid\":",
    "\"crit\":",
    "\"iss\":\"https://issuer\"",
    "\"aud\":",
    "\"exp\":",
    "\"warnafter\":",
    "9223372036854775807",
    "-9223372036854775808",
    "1e400",
    "null",
    "\"expirationSeconds\":",
    "\"boundObjectRef\":",
    "eyJ",
    "AAAA",
];

const ISSUER: &str = "https://issuer";
/// 2026-12-01.
const NOW_SECONDS: i64 = 1_796_083_200;

/// The account `builder` in `dev`, and its pod.
struct Cluster;

impl BoundObjects for Cluster {
    fn get_json(&self, kind: BoundObjectKind, namespace: &str, name: &str) -> Option<Cow<'_, [u8]>> {
        let object: &[u8] = match (kind, namespace, name) {
            (BoundObjectKind::ServiceAccount, "dev", "builder") => br#"{"metadata":{"uid":"u1"}}"#,
            (BoundObjectKind::Pod, "dev", "p") => {
                br#"{"metadata":{"uid":"u2"},"spec":{"serviceAccountName":"builder"}}"#
            }
            _ => return None,
        };
        Some(object.into())
    }
}

/// A verifier, an issuer with its key, and a valid token.
struct Fixture {
    issuer: TokenIssuer,
    verifier: TokenVerifier,
    token: String,
}

fn now() -> Timestamp {
    Timestamp::from_second(NOW_SECONDS).expect("a date of this century")
}

fn issue(issuer: &TokenIssuer, body: &[u8]) -> Option<String> {
    let request = TokenRequest { namespace: "dev", name: "builder", body, now: now(), random: [7; 16] };
    let issued = issuer.issue(&request, &Cluster).ok()?;
    let response: serde_json::Value = serde_json::from_slice(&issued.body).expect("a TokenRequest is JSON");
    Some(response["status"]["token"].as_str().expect("the status has a token").to_owned())
}

/// The key is made per process: no key is stored in the repository, and no outcome depends on it.
fn fixture() -> &'static Fixture {
    static FIXTURE: OnceLock<Fixture> = OnceLock::new();
    FIXTURE.get_or_init(|| {
        let key = rcgen::KeyPair::generate().expect("a key").serialize_pem();
        let issuer = TokenIssuer {
            issuer: ISSUER.to_owned(),
            signing_key: SigningKey::from_pem(&key).expect("an ECDSA key"),
            audiences: vec![ISSUER.to_owned()],
            max_expiration_seconds: None,
            extend_expiration: true,
        };
        let audiences = vec![ISSUER.to_owned()];
        let keys = VerifyingKey::all_from_pem(&key).expect("an ECDSA key");
        let verifier = TokenVerifier::new(vec![ISSUER.to_owned()], audiences, keys);
        let token = issue(&issuer, br#"{"spec":{}}"#).expect("the account exists");
        Fixture { issuer, verifier, token }
    })
}

/// Text with up to three parts; `=` stands for that part of a valid token, and JSON is encoded.
fn assemble(text: &str, valid: &str) -> String {
    let mut of_valid = valid.split('.');
    // Parts of JSON contain dots, so that the separators are those outside of braces.
    let mut depth = 0_usize;
    let parts = text.split(|character| {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == '.' && depth == 0
    });
    let parts = parts.map(|part| {
        let own = of_valid.next().unwrap_or_default();
        match part {
            "=" => own.to_owned(),
            json if json.starts_with('{') => URL_SAFE_NO_PAD.encode(json),
            other => other.to_owned(),
        }
    });
    parts.collect::<Vec<_>>().join(".")
}

/// A token that differs from an issued one in any byte is refused, and an issued one is for its account alone. Claims of
/// any content are checked without a panic.
pub fn token(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Fixture { issuer, verifier, token } = fixture();
    let audiences = [ISSUER.to_owned()];
    let presented = assemble(&text, token);
    match verifier.authenticate(&presented, &audiences, &Cluster, now()) {
        Ok(Some(authenticated)) => {
            assert_eq!(presented, *token, "only the issued token is valid");
            assert_eq!(authenticated.user.name, "system:serviceaccount:dev:builder");
        }
        Ok(None) => assert_ne!(presented, *token),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Some(issued) = issue(issuer, input) {
        match verifier.authenticate(&issued, &audiences, &Cluster, now()) {
            Ok(Some(authenticated)) => assert_eq!(authenticated.user.name, "system:serviceaccount:dev:builder"),
            Ok(None) => panic!("an issued token is of the issuer"),
            // It may be for other audiences.
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    let claims = text.split_once(".{").map_or_else(|| text.to_string(), |(_, rest)| format!("{{{rest}"));
    let claims = claims.rsplit_once('}').map_or(claims.clone(), |(json, _)| format!("{json}}}"));
    if let Ok(claims) = serde_json::from_str::<Claims>(&claims) {
        let _ = claims.check_time(now());
        assert!(claims.user().name.starts_with("system:serviceaccount:"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholder_stands_for_the_part_of_a_valid_token() {
        let Fixture { verifier, token, .. } = fixture();
        assert_eq!(assemble("=.=.=", token), *token);
        let user = verifier.authenticate(token, &[ISSUER.to_owned()], &Cluster, now()).expect("it is valid");
        assert_eq!(user.expect("it is of the issuer").user.name, "system:serviceaccount:dev:builder");
        let parts: Vec<&str> = token.split('.').collect();
        let forged = assemble(r#"=.{"iss":"https://a.b"}.="#, token);
        assert_eq!(forged, format!("{}.{}.{}", parts[0], URL_SAFE_NO_PAD.encode(r#"{"iss":"https://a.b"}"#), parts[2]));
    }
}
