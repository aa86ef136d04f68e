//! The OpenID configuration and key set with which relying parties verify service account tokens.

use access::tokens::openid::{CONFIGURATION_PATH, JWKS_MEDIA_TYPE, JWKS_PATH, MAX_AGE_SECONDS};
use api::media::Encoding;
use edge::{Body, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};

use crate::access_control::TokenSigning;

/// Serves an OpenID document; `None` if the path is not one or the issuer does not publish them.
pub(crate) fn serve(signing: &TokenSigning, path: &str) -> Option<Response> {
    let documents = signing.openid_documents.as_ref()?;
    let (body, media_type) = match path {
        CONFIGURATION_PATH => (&documents.configuration, Encoding::Json.media_type()),
        JWKS_PATH => (&documents.jwks, JWKS_MEDIA_TYPE),
        _ => return None,
    };
    let mut response = Response::new(Body::from(body.clone()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    let age = HeaderValue::try_from(format!("public, max-age={MAX_AGE_SECONDS}"));
    headers.insert(CACHE_CONTROL, age.expect("a number is a header value"));
    Some(response)
}
