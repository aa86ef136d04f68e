//! Create and update: decode, prepare, validate, persist.

use access::Attributes;
use api::{FieldError, GroupVersionKind, Status, Verb};
use bytes::Bytes;
use edge::{Request, Response};
use http::StatusCode;
use http::header::{HeaderValue, WARNING};
use object::managed_fields::{self, Writer};
use object::metadata::Stamp;
use object::rules::StatusPart;
use object::{Refusal, Stored, decode, delete, metadata, unknown, validate};
use registry::read::Freshness;
use registry::{Decision, WriteError, Written};
use store::Compare;

use super::{Context, now};
use crate::admission::{Grant, Seen, Verdict};
use crate::bodies::{self, Expected};
use crate::forms::{self, Object};
use crate::options::WriteOptions;
use crate::typed::{self, Checked, Fields};
use crate::{faults, json, kinds};

/// A generated name that is taken is made anew so often, as kube-apiserver does; and so often a namespace may change under us.
const TRIES: usize = 8;

pub(super) async fn create(context: Context<'_>, request: Request) -> Result<Response, Status> {
    let options = WriteOptions::of(&request)?;
    let Checked { mut object, warnings } = decode_body(context, request).await?;
    decode::match_namespace(&mut object, context.namespace()).map_err(|refusal| context.refused(refusal, ""))?;
    let mut place = context.admit_into_namespace(Seen::InCache).await?;
    let is_generated = text(&object, "name").is_empty() && !text(&object, "generateName").is_empty();
    for _ in 0..TRIES {
        match context.create_once(object.clone(), &options, place.as_ref()).await {
            Err(NotCreated::Taken { name }) if is_generated => {
                tracing::debug!(name, "a generated name is taken; trying another");
            }
            Err(NotCreated::Taken { name }) => {
                return Err(Status::already_exists(context.asked.group_resource(), &name));
            }
            Err(NotCreated::Moved) => place = context.admit_into_namespace(Seen::Now).await?,
            Err(NotCreated::Refused(status)) => return Err(status),
            Ok(stored) => return Ok(warned(context.respond(StatusCode::CREATED, &stored), &warnings)),
        }
    }
    if !is_generated {
        return Err(Status::service_unavailable("the namespace is changed again and again").with_retry_after(1));
    }
    Err(Status::generate_name_conflict(context.asked.group_resource(), text(&object, "generateName"), 1))
}

pub(super) async fn update(context: Context<'_>, request: Request) -> Result<Response, Status> {
    context.refuse_odd_names()?;
    let options = WriteOptions::of(&request)?;
    let Checked { mut object, warnings } = decode_body(context, request).await?;
    let name = &*context.asked.name;
    decode::match_namespace(&mut object, context.namespace()).map_err(|refusal| context.refused(refusal, name))?;
    decode::match_name(&object, name).map_err(|refusal| context.refused(refusal, name))?;
    let place = context.admit_new_into_namespace().await?;
    let response = context
        .replace_beside(&options, place.as_ref(), |current| match current {
            Some(_) => Ok(object.clone()),
            None if context.resource.rules.create_on_update && context.asked.subresource.is_empty() => {
                Ok(object.clone())
            }
            None => Err(Status::not_found(context.asked.group_resource(), name)),
        })
        .await?;
    Ok(warned(response, &warnings))
}

/// Tells the client what was wrong and not refused.
pub(crate) fn warned(mut response: Response, warnings: &[impl AsRef<str>]) -> Response {
    for warning in warnings {
        let text = warning.as_ref().replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::try_from(format!("299 - \"{text}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
    response
}

/// Why an object was not created.
enum NotCreated {
    /// The name is taken.
    Taken {
        name: String,
    },
    /// The namespace is not as it was seen.
    Moved,
    Refused(Status),
}

impl Context<'_> {
    /// Puts what `next` makes of the object that is there, in the version of the request, and answers with it.
    pub(super) async fn replace(
        self,
        options: &WriteOptions,
        next: impl FnMut(Option<&Object>) -> Result<Object, Status>,
    ) -> Result<Response, Status> {
        self.replace_beside(options, None, next).await
    }

    /// The same, if a namespace is still as it was seen.
    async fn replace_beside(
        self,
        options: &WriteOptions,
        place: Option<&Compare>,
        next: impl FnMut(Option<&Object>) -> Result<Object, Status>,
    ) -> Result<Response, Status> {
        let (code, stored) = self.write_next(options, place, next).await?;
        Ok(self.respond(code, &stored))
    }

    /// Puts what `next` makes of the object that is there, in the version of the request.
    pub(super) async fn write_next(
        self,
        options: &WriteOptions,
        place: Option<&Compare>,
        mut next: impl FnMut(Option<&Object>) -> Result<Object, Status>,
    ) -> Result<(StatusCode, Stored), Status> {
        let name = &*self.asked.name;
        let key = self.key_of(name);
        let mut dry = None;
        let mut shown = None;
        let mut is_new = false;
        let decide = |current: Option<&Stored>| {
            let old = current.map(|stored| forms::object_of(stored, self.resource.served));
            let new = next(old.as_ref())?;
            is_new = old.is_none();
            let decision = match &old {
                None => {
                    let value = self.new_object(new, options)?;
                    self.authorize_create()?;
                    Decision::Put { value, ttl: self.resource.rules.ttl }
                }
                Some(old) => self.next_state(old, new, options)?,
            };
            shown = current.cloned();
            if options.dry_run {
                dry = Some(decision);
                return Ok(Decision::Keep);
            }
            Ok(decision)
        };
        let written = self.persist(self.resource, &key, place, decide).await.map_err(faults::unwritten)?;
        let code = if is_new { StatusCode::CREATED } else { StatusCode::OK };
        let stored = match (written, dry) {
            (Written::Put(stored), _) => stored,
            (_, Some(Decision::Put { value, .. })) => {
                let revision = shown.as_ref().map_or(0, |stored| stored.revision);
                Stored::from_storage(&value, revision).expect("we encoded it ourselves")
            }
            // The last finalizer went, or nothing changed: the object as it was.
            (Written::Deleted(_) | Written::Kept, _) => {
                shown.ok_or_else(|| Status::not_found(self.asked.group_resource(), name))?
            }
        };
        Ok((code, stored))
    }

    async fn create_once(
        self,
        mut object: Object,
        options: &WriteOptions,
        place: Option<&Compare>,
    ) -> Result<Stored, NotCreated> {
        self.refuse_escalation("", None, &object).map_err(NotCreated::Refused)?;
        if let Err(refusal) = prepare(&mut object, self, options) {
            return Err(NotCreated::Refused(self.refused(refusal, text(&object, "name"))));
        }
        let name = text(&object, "name").to_owned();
        let key = self.key_of(&name);
        let value = forms::storage_bytes(object, self.encoding());
        let decide = |current: Option<&Stored>| {
            if current.is_some() {
                return Err(Status::already_exists(self.asked.group_resource(), &name));
            }
            if options.dry_run {
                return Ok(Decision::Keep);
            }
            Ok(Decision::Put { value: value.clone(), ttl: self.resource.rules.ttl })
        };
        match self.persist(self.resource, &key, place, decide).await {
            Ok(Written::Put(stored)) => Ok(stored),
            Ok(Written::Kept | Written::Deleted(_)) => {
                Ok(Stored::from_storage(&value, 0).expect("we encoded it ourselves"))
            }
            Err(WriteError::Moved) => Err(NotCreated::Moved),
            Err(WriteError::Refused(_)) => Err(NotCreated::Taken { name }),
            Err(error) => Err(NotCreated::Refused(faults::unwritten(error))),
        }
    }

    /// What becomes of an object whose next state is wanted to be `new`.
    fn next_state(self, old: &Object, mut new: Object, options: &WriteOptions) -> Result<Decision, Status> {
        let name = &*self.asked.name;
        let rules = self.resource.rules;
        let served = self.resource.served;
        let subresource = &*self.asked.subresource;
        if let Some(next) = kinds::write_part(served, subresource, [old, &new], &self.server.gates, now()) {
            new = next;
        }
        self.refuse_escalation(name, Some(old), &new)?;
        self.server.refuse_verdict(&Verdict { user: &self.caller.user, served, subresource, old, new: &new })?;
        typed::complete(&mut new, &self.server.gates, served.response_kind());
        if let Some(known) = self.fields().known(served.response_kind()) {
            unknown::drop_fields(Some(old), &mut new, known);
            unknown::keep_fields(old, &mut new, known);
        }
        let prepared = match subresource {
            "status" | "approval" => metadata::prepare_status_update(old, &mut new, rules),
            _ => metadata::prepare_update(old, &mut new, rules),
        };
        prepared
            .and_then(|()| match subresource {
                "" | "scale" => kinds::keep(served, old, &mut new),
                part => kinds::keep_part(served, part, old, &mut new, now()),
            })
            .and_then(|()| Refusal::invalid_unless_empty(self.update_faults(old, &new)))
            .map_err(|refusal| self.refused(refusal, name))?;
        let api_version = self.api_version();
        managed_fields::update(old, &mut new, &self.writer(options, &api_version));
        let is_removed = match self.resource.served.kind.plural {
            "namespaces" => kinds::is_finished(served, &new),
            _ => delete::is_removed_by_update(old, &new),
        };
        if is_removed {
            return Ok(Decision::Delete);
        }
        if metadata::is_no_op(old, &new) {
            return Ok(Decision::Keep);
        }
        Ok(Decision::Put { value: forms::storage_bytes(new, self.encoding()), ttl: rules.ttl })
    }

    /// The breaches of an update, through whichever subresource: of metadata, of values, and changes of what must stay.
    fn update_faults(self, old: &Object, new: &Object) -> Vec<FieldError> {
        let (kind, subresource) = (self.resource.served.response_kind(), &*self.asked.subresource);
        let mut faults = validate::metadata_update(old, new, self.resource.rules);
        faults.extend(typed::refused_values(Some(old), new, self.server.surface.release(), kind));
        faults.extend(typed::forbidden_changes([old, new], &self.server.gates, kind, subresource));
        faults
    }

    fn new_object(self, mut object: Object, options: &WriteOptions) -> Result<Bytes, Status> {
        self.refuse_escalation(&self.asked.name, None, &object)?;
        prepare(&mut object, self, options).map_err(|refusal| self.refused(refusal, &self.asked.name))?;
        Ok(forms::storage_bytes(object, self.encoding()))
    }

    /// A write of an object that is absent creates it, for which the right to update is not enough. Kubernetes asks for
    /// `create` with the name of the object, after validation.
    fn authorize_create(self) -> Result<(), Status> {
        let asked = self.asked;
        let object = access::Resource {
            group: &asked.group,
            version: &asked.version,
            resource: &asked.resource,
            subresource: &asked.subresource,
            namespace: &asked.namespace,
            name: &asked.name,
        };
        let attributes = Attributes::resource(&self.caller.user, Verb::Create.as_str(), object);
        self.server.rules.authorize(&attributes)
    }

    /// `name` is the one in the path, which a create does not have.
    fn refuse_escalation(self, name: &str, old: Option<&Object>, new: &Object) -> Result<(), Status> {
        let (served, namespace, user) = (self.resource.served, self.namespace(), &*self.caller.user);
        self.server.refuse_escalation(&Grant { user, served, namespace, name, old, new })
    }

    /// The same for an update that may create.
    async fn admit_new_into_namespace(self) -> Result<Option<Compare>, Status> {
        if !self.resource.rules.create_on_update || !self.asked.subresource.is_empty() {
            return Ok(None);
        }
        let key = self.key_of(&self.asked.name);
        let found =
            self.server.registry.get(self.resource.shelf, &key, Freshness::Any).await.map_err(faults::unread)?;
        if found.is_some() { Ok(None) } else { self.admit_into_namespace(Seen::Now).await }
    }

    /// Nothing is created in a namespace that is not there, or that is about to go.
    async fn admit_into_namespace(self, seen: Seen) -> Result<Option<Compare>, Status> {
        match self.namespace() {
            "" => Ok(None),
            namespace => self.server.admit_into(namespace, seen, self.about("")).await,
        }
    }

    pub(super) fn refused(self, refusal: Refusal, name: &str) -> Status {
        faults::refused(refusal, self.about(name))
    }

    pub(super) fn respond(self, code: StatusCode, stored: &Stored) -> Response {
        let mut response = json(forms::body_of(stored, self.resource.served));
        *response.status_mut() = code;
        response
    }

    /// What the release of this server knows of its kinds' fields.
    pub(super) fn fields(&self) -> Fields {
        Fields(self.server.surface.release())
    }

    /// The version of the request, as in `apiVersion`.
    fn api_version(&self) -> String {
        self.asked.group_version().to_string()
    }

    fn writer<'w>(&'w self, options: &'w WriteOptions, api_version: &'w str) -> Writer<'w> {
        let subresource = &*self.asked.subresource;
        Writer { manager: &options.manager, api_version, subresource, now: now() }
    }

    pub(super) fn encoding(self) -> GroupVersionKind<&'static str> {
        self.resource.served.persisted.as_ref().expect("a bound resource is persisted").encoding
    }
}

fn prepare(object: &mut Object, context: Context<'_>, options: &WriteOptions) -> Result<(), Refusal> {
    let rules = context.resource.rules;
    let (release, kind) = (context.server.surface.release(), context.resource.served.response_kind());
    typed::drop_unknown_fields(object, release, kind);
    typed::complete(object, &context.server.gates, kind);
    let status = if kinds::is_created_with_status(context.resource.served) { object.remove("status") } else { None };
    let stamp = Stamp { now: now(), uid: &new_uid(), random: fastrand::u64(..) };
    metadata::prepare_create(object, rules, &stamp)?;
    object.extend(status.map(|status| ("status".to_owned(), status)));
    kinds::complete(context.resource.served, &context.caller.user, object)?;
    if rules.status != StatusPart::None {
        typed::complete_status(object, release, kind);
    }
    let api_version = context.api_version();
    managed_fields::update(&Object::new(), object, &context.writer(options, &api_version));
    let mut faults = validate::metadata(object, rules);
    faults.extend(typed::refused_values(None, object, release, kind));
    Refusal::invalid_unless_empty(faults)
}

/// An object as sent: of the right kind and types. Warnings go to the client with the answer.
async fn decode_body(context: Context<'_>, request: Request) -> Result<Checked, Status> {
    let expected = Expected {
        kind: context.resource.served.response_kind(),
        release: context.server.surface.release(),
        about: context.about(""),
    };
    bodies::read(request, &expected).await
}

fn text<'a>(object: &'a Object, field: &str) -> &'a str {
    object.get("metadata").and_then(|metadata| metadata.get(field)).and_then(|value| value.as_str()).unwrap_or_default()
}

/// A random uid.
pub(crate) fn new_uid() -> String {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has random numbers");
    uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
}
