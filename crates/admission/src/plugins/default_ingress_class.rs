//! DefaultIngressClass: ingresses without a class get the newest default class.

use api::GroupResource;
use object::unstructured::{get, metadata_string, nested_object_mut};

use super::Plugin;
use super::storage::newest_default;
use crate::attributes::Operation;
use crate::chain::{Environment, Write};
use crate::refusal::Refusal;

const GROUP: &str = "networking.k8s.io";
const INGRESS_CLASSES: GroupResource<&str> = GroupResource { group: GROUP, resource: "ingressclasses" };
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const DEFAULT_ANNOTATION: &str = "ingressclass.kubernetes.io/is-default-class";

pub(super) static PLUGIN: Plugin =
    Plugin { name: "DefaultIngressClass", operations: &[Operation::Create], admit: Some(admit), validate: None };

fn admit(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    if !write.attributes.is_object(GROUP, "ingresses") {
        return Ok(());
    }
    let Some(ingress) = &mut write.object else { return Ok(()) };
    let has_class = get(ingress, &["spec", "ingressClassName"]).is_some_and(|class| !class.is_null())
        || get(ingress, &["metadata", "annotations", CLASS_ANNOTATION]).is_some();
    if has_class {
        return Ok(());
    }
    if let Some(class) = newest_default(environment.view.list(INGRESS_CLASSES, "")?, &[DEFAULT_ANNOTATION]) {
        let name = metadata_string(&class, "name");
        nested_object_mut(ingress, "spec").insert("ingressClassName".to_owned(), name.into());
    }
    Ok(())
}
