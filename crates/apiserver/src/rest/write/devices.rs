//! What a write of a claim of devices needs beyond the permission of its request.

use access::{Attributes, ResourceAttributes};
use api::json::JsonObject;
use api::{FieldError, Status};

use super::ObjectWrite;

impl ObjectWrite<'_> {
    /// Reports devices that the namespace does not allow, and parts of the status that the writer may not change.
    pub(super) fn check_device_requirements(
        &self,
        old: Option<&JsonObject>,
        new: &JsonObject,
    ) -> Result<Vec<FieldError>, Status> {
        let context = self.context;
        let (server, target) = (context.server, context.target);
        let rule = context.resource.strategy().device_requirements;
        let required = rule(&server.feature_gates, &target.subresource, old, new);
        let mut errors = Vec::new();
        if let Some(access) = required.admin_access {
            // Through another server the label may have been removed, or the namespace created.
            context.admission.require_current_view()?;
            if !server.has_namespace_label(context.namespace(), access.label)? {
                let label = format!("`{}: true`", access.label);
                let reason = format!("admin access to devices requires the {label} label on the containing namespace");
                errors.push(FieldError::forbidden(access.field, reason));
            }
        }
        let verb = target.verb.as_str();
        if required.binding
            && let Err(denied) = self.authorize_part("binding", verb, "", "")
        {
            let part = "changing status.allocation or status.reservedFor";
            errors.push(missing_permission("status.allocation", part, "binding", verb, &denied));
        }
        let is_on_node = required.node.is_some_and(|node| context.caller.user.is_service_account_on_node(&node));
        let mut verbs = vec![format!("arbitrary-node:{verb}")];
        if is_on_node {
            verbs.insert(0, format!("associated-node:{verb}"));
        }
        for driver in required.drivers {
            let decisions = verbs.iter().map(|verb| self.authorize_part("driver", verb, context.namespace(), &driver));
            // One of the verbs suffices; of the refusals the first is reported.
            let Err(denied) = decisions.reduce(|first, next| if next.is_ok() { next } else { first }).unwrap_or(Ok(()))
            else {
                continue;
            };
            let verbs = format!("[{}]", verbs.join(" "));
            errors.push(missing_permission("status.devices", "changing status.devices", "driver", &verbs, &denied));
        }
        Ok(errors)
    }

    /// Asks for the permission of the writer for a part of a claim.
    fn authorize_part(&self, part: &str, verb: &str, namespace: &str, name: &str) -> Result<(), Status> {
        let target = self.context.target;
        let (group, version, resource) = (&*target.group, &*target.version, &*target.resource);
        let asked = ResourceAttributes { group, version, resource, subresource: part, namespace, name };
        let attributes = Attributes::for_resource(&self.context.caller.user, verb, asked);
        self.context.server.access_rules.authorize(&attributes)
    }
}

fn missing_permission(field: &str, change: &str, part: &str, verb: &str, denied: &Status) -> FieldError {
    let permission = format!("resource=\"resourceclaims/{part}\", verb=\"{verb}\" permission");
    FieldError::forbidden(field, format!("{change} requires {permission}: {}", denied.message))
}
