//! List: one consistent state, page by page.

use api::Status;
use api::metadata::ListMeta;
use bytes::Bytes;
use edge::{Body, Request, Response};
use http::header::{CONTENT_TYPE, HeaderValue};
use registry::read::Freshness;
use registry::{Item, Listing, ReadError, Span};
use store::Key;

use super::selection::Selection;
use super::{Context, accept};
use crate::options::{ContinueToken, ListOptions, Purpose};
use crate::shape::Shape;
use crate::{faults, forms, json};

pub(super) async fn list(context: Context<'_>, request: &Request) -> Result<Response, Status> {
    let query = request.uri().query().unwrap_or_default();
    let shape = Shape::negotiate(accept(request), query)?;
    context.refuse_odd_names()?;
    let options = ListOptions::parse(query, Purpose::List)?;
    let token = options.token.as_deref().map(ContinueToken::decode).transpose()?;
    let freshness = match &token {
        Some(token) => token.revision().map_or(Freshness::Latest, Freshness::Exactly),
        None => options.list_freshness(),
    };
    let limit = options.limit;
    let selection = Selection::new(options.labels, options.fields, context.resource.served)?.named(&context.asked.name);
    let within = context.within();
    let span = Span {
        within: within.clone(),
        start: token.as_ref().map_or(Key::new(), |token| [&within, token.start().as_bytes()].concat().into()),
        limit,
        wants: &|stored| selection.selects(stored),
    };
    let listing = context.server.registry.list(context.resource.shelf, &span, freshness).await;
    let listing = listing.map_err(|error| page_fault(error, token.as_ref()))?;
    let metadata = list_metadata(&listing, &within, selection.is_everything());
    Ok(respond(context, &listing, &metadata, shape))
}

/// A page whose state is forgotten: the client may start over, or go on in the present with the token that comes along.
fn page_fault(error: ReadError, token: Option<&ContinueToken>) -> Status {
    match (&error, token) {
        (ReadError::Store(store::Error::Compacted { .. }), Some(token)) => {
            let mut status = Status::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new \
                 list without the continue parameter, or use the continue token in this response to retrieve the \
                 remainder of the results. Continuing with the provided token results in an inconsistent list - objects \
                 that were created, modified, or deleted between the time the first chunk was returned and now may show \
                 up in the list.",
            );
            status.metadata.continue_token = token.inconsistent().encode();
            status
        }
        _ => faults::unread(error),
    }
}

fn respond(context: Context<'_>, listing: &Listing, metadata: &ListMeta, shape: Shape) -> Response {
    let served = context.resource.served;
    let stored = || {
        listing.items.iter().filter_map(|cached| match &cached.item {
            Item::Object(stored) => Some(stored),
            Item::Raw(_) | Item::Undecodable(_) => None,
        })
    };
    if shape != Shape::Whole {
        let objects: Vec<_> = stored().map(|stored| forms::object_of(stored, served)).collect();
        return json(shape.list(&objects, metadata, served).expect("whole objects are answered below"));
    }
    let mut parts = Vec::with_capacity(listing.items.len() * 2 + 2);
    parts.push(head(context, metadata));
    for (at, stored) in stored().enumerate() {
        if at > 0 {
            parts.push(Bytes::from_static(b","));
        }
        parts.push(forms::body_of(stored, served));
    }
    parts.push(Bytes::from_static(b"]}\n"));
    let mut response = Response::new(Body::parts(parts));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Everything before the first item.
fn head(context: Context<'_>, metadata: &ListMeta) -> Bytes {
    let kind = context.resource.served.response_kind();
    let api_version = api::GroupVersion { group: kind.group, version: kind.version };
    let metadata = String::from_utf8(api::json::to_go_json(metadata)).expect("JSON is UTF-8");
    format!(r#"{{"kind":"{}List","apiVersion":"{api_version}","metadata":{metadata},"items":["#, kind.kind).into()
}

fn list_metadata(listing: &Listing, within: &Key, counts: bool) -> ListMeta {
    let mut metadata = ListMeta { resource_version: listing.revision.to_string(), ..ListMeta::default() };
    if let Some(rest) = &listing.rest {
        let start = String::from_utf8_lossy(&rest.start[within.len()..]);
        metadata.continue_token = ContinueToken::new(listing.revision, &start).encode();
        // With a selector it is known how many keys follow, and not how many of them are wanted.
        metadata.remaining_item_count = if counts { i64::try_from(rest.remaining).ok() } else { None };
    }
    metadata
}
