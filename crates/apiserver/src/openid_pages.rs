//! The two pages by which others verify the tokens of our service accounts.

use access::tokens::openid::{AGE_MAX_SECONDS, CONFIGURATION_PATH, KEYS_MEDIA_TYPE, KEYS_PATH};
use edge::{Body, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};

use crate::gate::Signing;

/// Answers if the path is one of these pages, and the issuer is one that others can verify.
pub(crate) fn serve(signing: &Signing, path: &str) -> Option<Response> {
    let documents = signing.documents.as_ref()?;
    let (body, media_type) = match path {
        CONFIGURATION_PATH => (&documents.configuration, "application/json"),
        KEYS_PATH => (&documents.keys, KEYS_MEDIA_TYPE),
        _ => return None,
    };
    let mut response = Response::new(Body::from(body.clone()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    let age = HeaderValue::try_from(format!("public, max-age={AGE_MAX_SECONDS}"));
    headers.insert(CACHE_CONTROL, age.expect("a number is a header value"));
    Some(response)
}
