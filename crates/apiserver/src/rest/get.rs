//! Get: a lookup, and the bytes that are there.

use api::Status;
use edge::{Request, Response};
use object::Stored;
use object::table::Headings;
use registry::Item;
use registry::read::Freshness;

use super::{Context, accept};
use crate::options::{ListOptions, Purpose};
use crate::shape::Shape;
use crate::{faults, json};

pub(super) async fn get(context: Context<'_>, request: &Request) -> Result<Response, Status> {
    let shape = Shape::negotiate(accept(request), request.uri().query().unwrap_or_default())?;
    show(context, request, |stored| json(shape.body_of(stored, context.resource.served, Headings::Shown))).await
}

/// Shows the object that a request names.
pub(super) async fn show(
    context: Context<'_>,
    request: &Request,
    form: impl FnOnce(&Stored) -> Response,
) -> Result<Response, Status> {
    context.refuse_odd_names()?;
    let freshness = match request.uri().query() {
        None => Freshness::Latest,
        Some(query) => match ListOptions::parse(query, Purpose::Get)?.list_freshness() {
            // A get has no exact match: the object as it is, and at least that new.
            Freshness::Exactly(revision) => Freshness::AtLeast(revision),
            other @ (Freshness::Latest | Freshness::AtLeast(_) | Freshness::Any) => other,
        },
    };
    let name = &*context.asked.name;
    let key = context.key_of(name);
    let found = context.server.registry.get(context.resource.shelf, &key, freshness).await.map_err(faults::unread)?;
    match found.as_deref().map(|cached| &cached.item) {
        Some(Item::Object(stored)) => Ok(form(stored)),
        Some(Item::Raw(_) | Item::Undecodable(_)) | None => {
            Err(Status::not_found(context.asked.group_resource(), name))
        }
    }
}
