//! Conversion of custom resources between versions.
//!
//! Without a webhook only `apiVersion` changes. With one, a [`ConversionCall`] has the body of the request, and checks the
//! response: the webhook may change everything but the metadata, of which it may change labels and annotations.

mod response;

use api::json::{JsonObject, to_go_json};
use api::{GroupVersion, GroupVersionKind};
use serde::Serialize;
use serde_json::{Value, json};

pub use response::ConversionError;

/// The version of `ConversionReview` that a webhook reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `apiextensions.k8s.io/v1`.
    V1,
    /// `apiextensions.k8s.io/v1beta1`: kind and uid of the response are not checked.
    V1Beta1,
}

impl ReviewVersion {
    /// The first known version of `conversionReviewVersions`; `None` if there is none.
    pub fn choose(conversion_review_versions: &[String]) -> Option<Self> {
        conversion_review_versions.iter().find_map(|version| match &**version {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        })
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "apiextensions.k8s.io/v1",
            Self::V1Beta1 => "apiextensions.k8s.io/v1beta1",
        }
    }
}

/// The error of a webhook that reads no known version of `ConversionReview`.
pub const NO_REVIEW_VERSION: &str = "no supported conversion review versions";

/// Sets `apiVersion` of an object, or of a list and its items: the strategy `None`.
pub fn set_api_version(object: &mut JsonObject, api_version: &str) {
    object.insert("apiVersion".to_owned(), api_version.into());
    if let Some(items) = object.get_mut("items").and_then(Value::as_array_mut) {
        for item in items.iter_mut().filter_map(Value::as_object_mut) {
            item.insert("apiVersion".to_owned(), api_version.into());
        }
    }
}

/// True if an object has nothing but its type: no webhook is asked about it.
pub fn is_empty_object(object: &JsonObject) -> bool {
    object.len() == 2 && object.contains_key("kind") && object.contains_key("apiVersion")
}

/// One request to a conversion webhook. Objects that already have the version must not be part of it.
#[derive(Clone, Copy, Debug)]
pub struct ConversionCall<'a> {
    /// The version of the request.
    pub review_version: ReviewVersion,
    /// Identifies the request; of the caller's making.
    pub uid: &'a str,
    /// The version to convert to.
    pub desired: GroupVersion<&'a str>,
    /// The kind that errors name: that of the object or of the list.
    pub subject: GroupVersionKind<&'a str>,
    /// Whether the objects are the items of a list.
    pub is_list: bool,
    /// The objects to convert.
    pub objects: &'a [&'a JsonObject],
}

impl ConversionCall<'_> {
    /// The body of the request, as JSON.
    pub fn to_body(self) -> Vec<u8> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Review<'a> {
            kind: &'a str,
            api_version: &'a str,
            request: Request<'a>,
            response: Response<'a>,
        }
        #[derive(Serialize)]
        struct Request<'a> {
            uid: &'a str,
            #[serde(rename = "desiredAPIVersion")]
            desired_api_version: String,
            objects: &'a [&'a JsonObject],
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Response<'a> {
            uid: &'a str,
            converted_objects: Option<&'a str>,
            result: Value,
        }
        let review = Review {
            kind: "ConversionReview",
            api_version: self.review_version.api_version(),
            request: Request { uid: self.uid, desired_api_version: self.desired.to_string(), objects: self.objects },
            response: Response { uid: "", converted_objects: None, result: json!({"metadata": {}}) },
        };
        let mut body = to_go_json(&review);
        body.push(b'\n');
        body
    }
}

#[cfg(test)]
mod tests;
