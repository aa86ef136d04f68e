//! Responses in YAML, made from those in JSON. Errors and watches stay JSON.

use api::media::{Encoding, ObjectOffer, negotiate};
use api::{Status, Verb};
use edge::{Body, Response};
use http::HeaderValue;
use http::header::{ACCEPT, CONTENT_TYPE};
use serde_json::Value;

/// True if the response to a request must be YAML.
pub(crate) fn is_requested<B>(request: &http::Request<B>, verb: Verb) -> bool {
    let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    // Nearly no request gets past the first condition, which costs little.
    accept.contains("yaml")
        && verb != Verb::Watch
        && negotiate(accept, ObjectOffer::CUSTOM).is_ok_and(|accepted| accepted.encoding == Encoding::Yaml)
}

/// The same response in YAML.
pub(crate) fn in_yaml(response: Response) -> Result<Response, Status> {
    let (mut parts, body) = response.into_parts();
    let json = match body {
        Body::Full(bytes) => bytes,
        Body::Parts { parts, .. } => parts.collect::<Vec<_>>().concat().into(),
        other @ (Body::Empty | Body::Stream(_) | Body::Peer(_) | Body::Seated { .. } | Body::Recorded { .. }) => {
            return Ok(Response::from_parts(parts, other));
        }
    };
    let value: Value = serde_json::from_slice(&json).map_err(|error| Status::internal_error(error.to_string()))?;
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static(Encoding::Yaml.media_type()));
    Ok(Response::from_parts(parts, object::encode_yaml::to_yaml(&value).into()))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::json_response;

    #[test]
    fn yaml_is_made_only_if_it_is_preferred_and_not_for_watches() {
        let is_requested = |accept: &str, verb| {
            let request = http::Request::builder().header("accept", accept).body(()).expect("the header is valid");
            super::is_requested(&request, verb)
        };
        assert!(is_requested("application/yaml", Verb::Get));
        assert!(is_requested("application/yaml;as=Table;v=v1;g=meta.k8s.io", Verb::List));
        assert!(is_requested("application/yaml, application/json;q=0.5", Verb::Create));
        assert!(!is_requested("application/json, application/yaml", Verb::Get));
        assert!(!is_requested("application/yaml", Verb::Watch));
        let metadata =
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io, application/yaml";
        assert!(!is_requested(metadata, Verb::Get), "metadata is sent in protobuf");
    }

    #[test]
    fn whole_bodies_become_yaml() {
        for body in [
            Body::from(Bytes::from_static(b"{\"a\":[1]}")),
            Body::from_parts(vec![Bytes::from_static(b"{\"a\":"), Bytes::from_static(b"[1]}")]),
        ] {
            let response = in_yaml(json_response(body)).expect("the body is JSON");
            assert_eq!(response.headers()[CONTENT_TYPE], "application/yaml");
            let Body::Full(bytes) = response.into_body() else { panic!("the body is whole") };
            assert_eq!(bytes, "a:\n- 1\n");
        }
    }
}
