//! List: pages of one consistent state.

use api::Status;
use api::metadata::ListMeta;
use bytes::Bytes;
use edge::{Body, Response};
use object::StoredObject;
use registry::read::ReadConsistency;
use registry::{CachedValue, ListPage, ListSelection, ReadError};
use store::Key;

use super::BufferedRequest;
use super::object_selector::ObjectSelector;
use super::{RequestContext, accept_header};
use crate::definitions::ROUNDS_MAX;
use crate::representation::ObjectRepresentation;
use crate::request_options::{ContinueToken, ListOptions, ReadVerb};
use crate::{error_status, json_response, object_codec};

pub(super) async fn list(context: RequestContext<'_>, request: &BufferedRequest) -> Result<Response, Status> {
    let query = request.uri().query().unwrap_or_default();
    let representation = ObjectRepresentation::negotiate(accept_header(request), query)?;
    context.check_path_names()?;
    let options = ListOptions::parse(query, ReadVerb::List)?;
    let continue_token = options.continue_token.as_deref().map(ContinueToken::decode).transpose()?;
    let consistency = match &continue_token {
        Some(continue_token) => continue_token.revision().map_or(ReadConsistency::Latest, ReadConsistency::Exact),
        None => options.list_consistency(),
    };
    let limit = options.limit;
    let object_selector = ObjectSelector::new(options.label_selector, options.field_selector, context.resource)?
        .with_name(&context.target.name);
    let within = context.key_prefix();
    let selection = ListSelection {
        prefix: within.clone(),
        start_key: continue_token
            .as_ref()
            .map_or(Key::new(), |continue_token| [&within, continue_token.start().as_bytes()].concat().into()),
        limit,
        filter: &|stored| object_selector.matches(stored),
    };
    let page = context.select_page(&selection, &object_selector, consistency).await?;
    let page = page.map_err(|error| status_for_list_error(error, continue_token.as_ref()))?;
    let metadata = list_metadata(&page, &within, object_selector.selects_all());
    list_response(context, &page, &metadata, representation)
}

impl RequestContext<'_> {
    /// Reads the selected objects, and converts those whose version the request does not ask for.
    pub(super) async fn select_page(
        self,
        selection: &ListSelection<'_>,
        object_selector: &ObjectSelector,
        consistency: ReadConsistency,
    ) -> Result<Result<ListPage, ReadError>, Status> {
        let resource = self.resource;
        for _ in 0..ROUNDS_MAX {
            let page = match self.server.registry.list(&resource.cache, selection, consistency).await {
                Ok(page) => page,
                Err(error) => return Ok(Err(error)),
            };
            match object_selector.take_failure() {
                // The selector needs objects in the version of the request.
                Some(failure) if !resource.run_conversions().await? => return Err(failure),
                Some(_) => {}
                None => {
                    if resource.conversions().is_some() {
                        Box::pin(resource.convert_ahead(stored_objects(&page))).await?;
                    }
                    return Ok(Ok(page));
                }
            }
        }
        Err(Status::service_unavailable("the objects changed during every attempt to convert them").with_retry_after(1))
    }
}

fn stored_objects(page: &ListPage) -> impl Iterator<Item = &StoredObject> {
    page.entries.iter().filter_map(|cached| match &cached.value {
        CachedValue::Object(stored) => Some(stored),
        CachedValue::Raw(_) | CachedValue::Undecodable(_) => None,
    })
}

/// The Status of a failed list. If the revision of a page was compacted, it carries a token to continue in the latest
/// state.
fn status_for_list_error(error: ReadError, continue_token: Option<&ContinueToken>) -> Status {
    match (&error, continue_token) {
        (ReadError::Store(store::Error::Compacted { .. }), Some(token)) => {
            let mut status = Status::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new \
                 list without the continue parameter, or use the continue token in this response to retrieve the \
                 remainder of the results. Continuing with the provided token results in an inconsistent list - objects \
                 that were created, modified, or deleted between the time the first chunk was returned and now may show \
                 up in the list.",
            );
            status.metadata.continue_token = token.without_revision().encode();
            status
        }
        _ => error_status::status_for_read_error(error),
    }
}

pub(super) fn list_response(
    context: RequestContext<'_>,
    page: &ListPage,
    metadata: &ListMeta,
    representation: ObjectRepresentation,
) -> Result<Response, Status> {
    let resource = context.resource;
    let is_metadata = matches!(representation, ObjectRepresentation::PartialMetadata(..));
    let decode = |stored: &StoredObject| {
        // Whole objects of a large list take several times the memory of their bytes.
        if is_metadata && resource.is_stored_form(stored) {
            return Ok(stored.to_metadata_object());
        }
        object_codec::decode_served(stored, resource)
    };
    let objects = || stored_objects(page).map(decode).collect();
    if let Some(encoded) = representation.encode_list(objects, metadata, resource)? {
        return Ok(representation.response(encoded));
    }
    let mut parts = Vec::with_capacity(page.entries.len() * 3 + 2);
    parts.push(list_head(context, metadata));
    for (at, stored) in stored_objects(page).enumerate() {
        object_codec::push_list_item(&mut parts, at == 0, stored, resource)?;
    }
    parts.push(Bytes::from_static(b"]}\n"));
    Ok(json_response(Body::from_parts(parts)))
}

/// The JSON before the first item.
fn list_head(context: RequestContext<'_>, metadata: &ListMeta) -> Bytes {
    let kind = context.resource.group_version_kind();
    let api_version = api::GroupVersion { group: kind.group, version: kind.version };
    let mut metadata = String::from_utf8(api::json::to_go_json(metadata)).expect("JSON is UTF-8");
    // kube-apiserver writes lists of custom objects from their fields, of which this one always exists.
    if context.resource.as_custom().is_some() && !metadata.contains(r#""continue""#) {
        metadata = metadata.replacen('{', r#"{"continue":"","#, 1);
    }
    let list_kind = context.resource.list_kind();
    format!(r#"{{"kind":"{list_kind}","apiVersion":"{api_version}","metadata":{metadata},"items":["#).into()
}

pub(super) fn list_metadata(page: &ListPage, key_prefix: &Key, is_count_exact: bool) -> ListMeta {
    let mut metadata = ListMeta { resource_version: page.revision.to_string(), ..ListMeta::default() };
    if let Some(rest) = &page.continuation {
        let start = String::from_utf8_lossy(&rest.start_key[key_prefix.len()..]);
        metadata.continue_token = ContinueToken::new(page.revision, &start).encode();
        // With a selector the number of remaining keys is known, but not how many of them match.
        metadata.remaining_item_count = if is_count_exact { i64::try_from(rest.remaining).ok() } else { None };
    }
    metadata
}
