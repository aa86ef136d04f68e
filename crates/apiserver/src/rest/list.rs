//! List: one consistent state, page by page.

use api::Status;
use api::media::{Offer, negotiate};
use bytes::Bytes;
use edge::{Body, Request, Response};
use http::header::{CONTENT_TYPE, HeaderValue};
use registry::read::Freshness;
use registry::{Item, Listing, ReadError, Span};
use store::{Key, Revision};

use super::selection::Selection;
use super::{Context, accept};
use crate::options::{ContinueToken, ListOptions};
use crate::{faults, forms};

pub(super) async fn list(context: Context<'_>, request: &Request) -> Result<Response, Status> {
    negotiate(accept(request), Offer::JSON)?;
    context.refuse_odd_names()?;
    let options = ListOptions::parse(request.uri().query().unwrap_or_default())?;
    let token = options.token.as_deref().map(ContinueToken::decode).transpose()?;
    let freshness = match &token {
        Some(token) => token.revision().map_or(Freshness::Latest, Freshness::Exactly),
        None => options.list_freshness(),
    };
    let limit = options.limit;
    let selection = Selection::new(options.labels, options.fields)?;
    let within = context.within();
    let span = Span {
        within: within.clone(),
        start: token.as_ref().map_or(Key::new(), |token| [&within, token.start().as_bytes()].concat().into()),
        limit,
        wants: &|stored| selection.selects(stored),
    };
    let listing = context.server.registry.list(context.resource.shelf, &span, freshness).await;
    let listing = listing.map_err(|error| page_fault(error, token.as_ref()))?;
    Ok(respond(context, &listing, &within, selection.is_everything()))
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

fn respond(context: Context<'_>, listing: &Listing, within: &Key, counts: bool) -> Response {
    let mut parts = Vec::with_capacity(listing.items.len() * 2 + 2);
    parts.push(head(context, listing, within, counts));
    let mut is_first = true;
    for cached in &listing.items {
        let Item::Object(stored) = &cached.item else { continue };
        if !is_first {
            parts.push(Bytes::from_static(b","));
        }
        is_first = false;
        parts.push(forms::body_of(stored, context.resource.served));
    }
    parts.push(Bytes::from_static(b"]}\n"));
    let mut response = Response::new(Body::parts(parts));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Everything before the first item.
fn head(context: Context<'_>, listing: &Listing, within: &Key, counts: bool) -> Bytes {
    let kind = context.resource.served.response_kind();
    let api_version = api::GroupVersion { group: kind.group, version: kind.version };
    let metadata = list_metadata(listing.revision, listing, within, counts);
    format!(r#"{{"kind":"{}List","apiVersion":"{api_version}","metadata":{metadata},"items":["#, kind.kind).into()
}

fn list_metadata(revision: Revision, listing: &Listing, within: &Key, counts: bool) -> String {
    let Some(rest) = &listing.rest else { return format!(r#"{{"resourceVersion":"{revision}"}}"#) };
    let start = String::from_utf8_lossy(&rest.start[within.len()..]).into_owned();
    let token = ContinueToken::new(revision, &start).encode();
    if counts {
        // Only then is it known how many follow, and not just how many keys.
        let remaining = rest.remaining;
        format!(r#"{{"resourceVersion":"{revision}","continue":"{token}","remainingItemCount":{remaining}}}"#)
    } else {
        format!(r#"{{"resourceVersion":"{revision}","continue":"{token}"}}"#)
    }
}
