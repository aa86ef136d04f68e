//! Whole objects by consistent lists.

use api::json::JsonObject;
use object::unstructured::metadata_string;
use serde_json::Value;

use crate::client::{ApiClient, ApiError, PAGE_SIZE};

/// All objects of a consistent list. `query` is a part of the query, such as `fieldSelector=…`, or empty.
pub(crate) async fn list_objects(client: &ApiClient, path: &str, query: &str) -> Result<Vec<JsonObject>, ApiError> {
    let (mut objects, mut token) = (Vec::new(), String::new());
    loop {
        let page = format!("{path}?{query}&limit={PAGE_SIZE}&continue={token}");
        let body = client.get(&page, "application/json").await?.body;
        let invalid = |error: &dyn std::fmt::Display| ApiError::InvalidResponse(format!("list: {error}"));
        let mut list: JsonObject = serde_json::from_slice(&body).map_err(|error| invalid(&error))?;
        match list.remove("items") {
            Some(Value::Array(items)) => {
                objects.extend(items.into_iter().filter_map(|item| {
                    let Value::Object(object) = item else { return None };
                    Some(object)
                }));
            }
            Some(Value::Null) => {}
            _ => return Err(invalid(&"no items")),
        }
        let next = metadata_string(&list, "continue");
        if next.is_empty() {
            return Ok(objects);
        }
        token = percent_encoding::utf8_percent_encode(next, percent_encoding::NON_ALPHANUMERIC).to_string();
    }
}
