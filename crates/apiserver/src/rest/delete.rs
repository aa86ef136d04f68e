//! Delete: at once, or marked and waited for.

use api::Status;
use bytes::Bytes;
use edge::{Request, Response};
use http::StatusCode;
use object::delete::{self, DeleteOptions, Deletion};
use object::{Refusal, Stored};
use registry::read::Freshness;
use registry::{Decision, Item, Span, Written};
use store::Key;

use super::selection::Selection;
use super::{Context, now};
use crate::options::{ListOptions, Purpose};
use crate::{bodies, faults, forms, json, kinds};

pub(super) async fn delete(context: Context<'_>, request: Request) -> Result<Response, Status> {
    context.refuse_odd_names()?;
    let options = delete_options(context, request).await?;
    let name = &*context.asked.name;
    match delete_one(context, context.key_of(name), name, &options).await? {
        Deleted::Gone(last) if kinds::shows_what_it_deletes(context.resource.served) => {
            Ok(context.respond(StatusCode::OK, &last))
        }
        Deleted::Gone(last) => {
            let status = Status::deleted(context.asked.group_resource(), name, &last.uid);
            Ok(json(status.to_json().into()))
        }
        Deleted::Waiting(stored) => Ok(context.respond(StatusCode::OK, &stored)),
    }
}

pub(super) async fn delete_collection(context: Context<'_>, request: Request) -> Result<Response, Status> {
    context.refuse_odd_names()?;
    let list = ListOptions::parse(request.uri().query().unwrap_or_default(), Purpose::List)?;
    let options = delete_options(context, request).await?;
    let selection = Selection::new(list.labels, list.fields, context.resource.served)?.named(&context.asked.name);
    let span =
        Span { within: context.within(), start: Key::new(), limit: None, wants: &|stored| selection.selects(stored) };
    let listing = context.server.registry.list(context.resource.shelf, &span, Freshness::Latest).await;
    let listing = listing.map_err(faults::unread)?;
    let kind = context.resource.served.response_kind();
    let api_version = api::GroupVersion { group: kind.group, version: kind.version };
    let mut page = format!(
        r#"{{"kind":"{}List","apiVersion":"{api_version}","metadata":{{"resourceVersion":"{}"}},"items":["#,
        kind.kind, listing.revision
    )
    .into_bytes();
    let mut is_first = true;
    for cached in &listing.items {
        let Item::Object(stored) = &cached.item else { continue };
        match delete_one(context, cached.key.clone(), &stored.name, &options).await {
            Ok(Deleted::Gone(_) | Deleted::Waiting(_)) => {}
            // Somebody else was quicker, which is what was asked for.
            Err(status) if status.http_code() == 404 => continue,
            Err(status) => return Err(status),
        }
        if !is_first {
            page.push(b',');
        }
        is_first = false;
        page.extend_from_slice(&forms::body_of(stored, context.resource.served));
    }
    page.extend_from_slice(b"]}\n");
    Ok(json(Bytes::from(page)))
}

pub(super) enum Deleted {
    Gone(Stored),
    Waiting(Stored),
}

pub(super) async fn delete_one(
    context: Context<'_>,
    key: Key,
    name: &str,
    options: &DeleteOptions,
) -> Result<Deleted, Status> {
    let not_found = || Status::not_found(context.asked.group_resource(), name);
    let refuse = |refusal: Refusal| context.refused(refusal, name);
    kinds::refuse_deletion(context.resource.served, name)?;
    let mut before: Option<Stored> = None;
    let mut is_dry_removal = false;
    let decide = |current: Option<&Stored>| {
        let current = current.ok_or_else(not_found)?;
        before = Some(current.clone());
        let object = forms::object_of(current, context.resource.served);
        let now = now();
        let deletion = delete::decide(&object, options, context.resource.rules, now).map_err(refuse)?;
        let deletion = kinds::delay(context.resource.served, &object, deletion, now);
        let decision = match deletion {
            Deletion::Remove(_) => Decision::Delete,
            Deletion::Pending => Decision::Keep,
            Deletion::Mark(marked) if marked == object => Decision::Keep,
            Deletion::Mark(marked) => Decision::Put {
                value: forms::storage_bytes(marked, context.encoding()),
                ttl: context.resource.rules.ttl,
            },
        };
        is_dry_removal = options.is_dry_run && decision == Decision::Delete;
        Ok(if options.is_dry_run { Decision::Keep } else { decision })
    };
    let written = context.persist(context.resource, &key, None, decide).await.map_err(faults::unwritten)?;
    let before = before.ok_or_else(not_found)?;
    Ok(match written {
        Written::Deleted(revision) => Deleted::Gone(before.at_revision(revision.0)),
        Written::Put(stored) => Deleted::Waiting(stored),
        Written::Kept if is_dry_removal => Deleted::Gone(before),
        Written::Kept => Deleted::Waiting(before),
    })
}

async fn delete_options(context: Context<'_>, request: Request) -> Result<DeleteOptions, Status> {
    let about = context.about(&context.asked.name);
    bodies::read_delete_options(request, context.server.surface.release(), about).await
}
