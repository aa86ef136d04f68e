//! The two places of admission in the sequence of a write.

use ::admission::webhook::PATCH_ANNOTATION;
use ::admission::{Notes, Operation};
use api::json::JsonObject;
use api::{GroupVersionKind, Status};
use object::unstructured::metadata_string;

use super::ObjectWrite;
use crate::admission::{AdmissionPhase, AdmittedWrite};
use crate::rest::RequestContext;
use crate::rest::scale::SCALE_KIND;

const INVALID_MANAGED_FIELDS: &str = ".metadata.managedFields was in an invalid state after admission; this could be \
    caused by an outdated mutating admission controller; please fix your requests";

impl ObjectWrite<'_> {
    /// Mutating admission: plugins and webhooks may change the object.
    pub(super) fn admit(&self, old: Option<&JsonObject>, new: &mut JsonObject) -> Result<(), Status> {
        let is_configured = self.context.server.admission.is_configured();
        let managed_fields = || new.get("metadata").and_then(|metadata| metadata.get("managedFields")).cloned();
        let managed_fields = if is_configured { managed_fields() } else { None };
        match (&*self.context.target.subresource, old) {
            ("scale", Some(old)) => {
                let old_scale = self.context.scale_of(old)?;
                let scale = self.context.scale_of(new)?;
                let admitted = self.run(AdmissionPhase::Mutating, Some(&old_scale), scale)?;
                *new = self.context.apply_scale(new, &admitted)?;
            }
            _ => *new = self.run(AdmissionPhase::Mutating, old, std::mem::take(new))?,
        }
        // Built-in plugins leave these alone.
        if !is_configured {
            return Ok(());
        }
        // Owners are recorded before admission; what it changes gets no new one.
        let metadata = object::unstructured::metadata_mut(new);
        if metadata.get("managedFields") != managed_fields.as_ref()
            && let Err(error) = managedfields::check_entries(new)
        {
            let metadata = object::unstructured::metadata_mut(new);
            object::unstructured::set_or_remove(metadata, "managedFields", managed_fields);
            self.context.execution.add_warnings([format!("{INVALID_MANAGED_FIELDS}: {error}")]);
        }
        let duplicates = object::metadata::dedup_owner_references(new);
        self.context.execution.add_warnings(duplicates);
        Ok(())
    }

    /// Validating admission on what is going to be stored.
    pub(super) fn check_admission(&self, old: Option<&JsonObject>, new: &mut JsonObject) -> Result<(), Status> {
        match (&*self.context.target.subresource, old) {
            ("scale", Some(old)) => {
                let old_scale = self.context.scale_of(old)?;
                self.run(AdmissionPhase::Validating, Some(&old_scale), self.context.scale_of(new)?).map(drop)
            }
            _ => {
                *new = self.run(AdmissionPhase::Validating, old, std::mem::take(new))?;
                Ok(())
            }
        }
    }

    fn run(&self, phase: AdmissionPhase, old: Option<&JsonObject>, new: JsonObject) -> Result<JsonObject, Status> {
        let operation = if old.is_some() { Operation::Update } else { Operation::Create };
        let kind = match &*self.context.target.subresource {
            "scale" => SCALE_KIND,
            _ => self.context.resource.group_version_kind(),
        };
        let options = self.context.server.admission.is_configured().then(|| self.options.to_object(operation));
        let is_dry_run = self.options.is_dry_run;
        let write = RequestedWrite { operation, kind, options: options.as_ref(), is_dry_run };
        let admitted = self.context.admit(phase, &write, old, Some(new), self.random)?;
        Ok(admitted.unwrap_or_default())
    }
}

/// What admission must know of a write besides its objects.
pub(in crate::rest) struct RequestedWrite<'a> {
    pub(in crate::rest) operation: Operation,
    pub(in crate::rest) kind: GroupVersionKind<&'a str>,
    /// Only webhooks and policies look at them.
    pub(in crate::rest) options: Option<&'a JsonObject>,
    pub(in crate::rest) is_dry_run: bool,
}

impl RequestContext<'_> {
    /// Runs a phase of admission within a decision.
    pub(in crate::rest) fn admit(
        self,
        phase: AdmissionPhase,
        write: &RequestedWrite<'_>,
        old: Option<&JsonObject>,
        new: Option<JsonObject>,
        random: u64,
    ) -> Result<Option<JsonObject>, Status> {
        let target = self.target;
        let name = match (&*target.name, &new) {
            ("", Some(object)) => metadata_string(object, "name").to_owned(),
            (name, _) => name.to_owned(),
        };
        let is_namespaces = target.group.is_empty() && target.resource == "namespaces";
        let admitted = AdmittedWrite {
            operation: write.operation,
            resource: self.resource,
            name: target.group_version_resource(),
            kind: write.kind,
            subresource: &target.subresource,
            object_name: &name,
            namespace: if is_namespaces { &name } else { self.namespace() },
            user: &self.caller.user,
            options: write.options,
            is_dry_run: write.is_dry_run,
            old_object: old,
            random,
        };
        let mut notes = Notes::default();
        let result = self.admission.run(self.server, phase, &admitted, new, &mut notes);
        self.execution.add_warnings(notes.warnings().iter().cloned());
        for (key, value) in notes.annotations() {
            if key.starts_with(PATCH_ANNOTATION) {
                self.record.annotate_with_request(key.clone(), || value.clone());
            } else {
                self.record.annotate(key.clone(), || value.clone());
            }
        }
        let object = result?;
        // Last of all plugins.
        if let (AdmissionPhase::Validating, Some(object)) = (phase, &object) {
            self.prepare_charge(write.operation, object, old, write.is_dry_run)?;
        }
        Ok(object)
    }

    /// Admits a request whose object is not stored, such as an eviction or a binding. Returns the object as plugins
    /// changed it. `complete` adds what the server fills in between the phases.
    pub(in crate::rest) async fn admit_unstored(
        self,
        kind: GroupVersionKind<&str>,
        object: JsonObject,
        options: &crate::request_options::WriteOptions,
        complete: impl Fn(&mut JsonObject),
    ) -> Result<JsonObject, Status> {
        let options_object = options.to_object(Operation::Create);
        let (is_dry_run, operation) = (options.is_dry_run, Operation::Create);
        let write = RequestedWrite { operation, kind, options: Some(&options_object), is_dry_run };
        let random = fastrand::u64(..);
        self.admission.catch_up(self.server).await?;
        for _ in 0..crate::rest::persist::ADMISSION_ROUNDS_MAX {
            self.admission.begin_decision();
            let mutated = self.admit(AdmissionPhase::Mutating, &write, None, Some(object.clone()), random);
            let admitted = mutated.and_then(|mut new| {
                new.iter_mut().for_each(&complete);
                self.admit(AdmissionPhase::Validating, &write, None, new, random)
            });
            match admitted {
                Ok(object) => {
                    self.admission.observe_checks(self.server);
                    return Ok(object.unwrap_or_default());
                }
                Err(status) => {
                    if !self.resolve_refusal(self.resource).await? {
                        self.admission.observe_checks(self.server);
                        return Err(status);
                    }
                }
            }
        }
        Err(Status::service_unavailable("admission did not come to an end").with_retry_after(1))
    }
}
