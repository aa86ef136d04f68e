//! The subresource `pods/eviction`: a pod is deleted, if its budget of disruption allows it.

use api::{GroupVersionKind, GroupVersionResource, Status};
use edge::{Request, Response};
use http::StatusCode;
use object::delete::DeleteOptions;
use object::{Stored, decode};
use registry::read::Freshness;
use registry::{Decision, Item, Span};
use serde_json::Value;
use store::Key;

use super::delete::delete_one;
use super::{Context, now, warned};
use crate::bodies::{self, Expected};
use crate::forms::{self, Object};
use crate::kinds::budget;
use crate::options::WriteOptions;
use crate::typed::Checked;
use crate::{Resource, faults, json};

const KIND: GroupVersionKind<&str> = GroupVersionKind { group: "policy", version: "v1", kind: "Eviction" };
const BUDGETS: GroupVersionResource<&str> =
    GroupVersionResource { group: "policy", version: "v1", resource: "poddisruptionbudgets" };

pub(super) async fn create(context: Context<'_>, request: Request) -> Result<Response, Status> {
    context.refuse_odd_names()?;
    let name = &*context.asked.name;
    let write = WriteOptions::of(&request)?;
    let about = context.about(name);
    let expected = Expected { kind: KIND, release: context.server.surface.release(), about };
    let Checked { object: eviction, warnings } = bodies::read(request, &expected).await?;
    let named = eviction.get("metadata").and_then(|metadata| metadata.get("name")).and_then(Value::as_str);
    if named.is_some_and(|named| !named.is_empty() && named != name) {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut options = delete_options(&eviction).map_err(|refusal| context.refused(refusal, name))?;
    options.is_dry_run |= write.dry_run;
    context.spend_budget(&options).await?;
    delete_one(context, context.key_of(name), name, &options).await?;
    let mut response = json(Status { outcome: api::status::Outcome::Success, ..Status::default() }.to_json().into());
    *response.status_mut() = StatusCode::CREATED;
    Ok(warned(response, &warnings))
}

fn delete_options(eviction: &Object) -> Result<DeleteOptions, object::Refusal> {
    let body = eviction.get("deleteOptions").filter(|options| !options.is_null()).map(ToString::to_string);
    DeleteOptions::read(body.unwrap_or_default().as_bytes(), decode::Encoding::Json, [])
}

impl Context<'_> {
    /// Takes what the deletion of the pod costs from its budget, or says why it must stay.
    async fn spend_budget(self, options: &DeleteOptions) -> Result<(), Status> {
        let registry = &self.server.registry;
        let found = registry.get(self.resource.shelf, &self.key_of(&self.asked.name), Freshness::Latest).await;
        let found = found.map_err(faults::unread)?.ok_or_else(|| self.not_found())?;
        let Item::Object(stored) = &found.item else { return Err(self.not_found()) };
        let pod = forms::object_of(stored, self.resource.served);
        let Some(budgets) = self.server.resolve(BUDGETS).filter(|_| !budget::is_free(&pod)) else { return Ok(()) };
        match &*self.budgets_of(budgets, &pod).await? {
            [] => Ok(()),
            [key] => self.spend(budgets, key, &pod, options).await,
            [_, _, ..] => Err(Status {
                message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not \
                          support."
                    .to_owned(),
                code: 500,
                ..Status::default()
            }),
        }
    }

    async fn budgets_of(self, budgets: Resource<'_>, pod: &Object) -> Result<Vec<Key>, Status> {
        let within = Key::from([budgets.shelf.prefix().as_ref(), self.namespace().as_bytes(), b"/"].concat());
        let covers = |stored: &Stored| budget::covers(&forms::object_of(stored, budgets.served), pod);
        let span = Span { within, start: Key::new(), limit: None, wants: &covers };
        let listing = self.server.registry.list(budgets.shelf, &span, Freshness::Latest).await;
        Ok(listing.map_err(faults::unread)?.items.iter().map(|cached| cached.key.clone()).collect())
    }

    async fn spend(
        self,
        budgets: Resource<'_>,
        key: &Key,
        pod: &Object,
        options: &DeleteOptions,
    ) -> Result<(), Status> {
        let persisted = budgets.served.persisted.as_ref().expect("a bound resource is persisted");
        let decide = |current: Option<&Stored>| {
            // A budget that has just gone holds nothing.
            let Some(current) = current else { return Ok(Decision::Keep) };
            match budget::spend(&forms::object_of(current, budgets.served), pod, now())? {
                Some(spent) if !options.is_dry_run => {
                    Ok(Decision::Put { value: forms::storage_bytes(spent, persisted.encoding), ttl: None })
                }
                Some(_) | None => Ok(Decision::Keep),
            }
        };
        self.persist(budgets, key, None, decide).await.map(drop).map_err(faults::unwritten)
    }
}
