//! Expressions of the Common Expression Language within objects: what they can refer to, and what they must evaluate to.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use k8s_cel::{DeclType, Environment, Field as TypeField, ListKind, Program, Release, Type};

use crate::validation::Field;

/// What an expression of admission can refer to beside the request and its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionVariables {
    /// `params`.
    pub params: bool,
    /// `authorizer` and `authorizer.requestResource`.
    pub authorizer: bool,
}

/// The environment of expressions that match, validate or mutate requests.
pub(crate) fn admission_environment(field: Field<'_>, variables: AdmissionVariables) -> Environment {
    declare_admission_variables(new_environment(field), variables)
}

/// Declares `object`, `oldObject`, `request`, `namespaceObject` and the optional variables of admission.
pub fn declare_admission_variables(environment: Environment, variables: AdmissionVariables) -> Environment {
    let mut environment = environment
        .variable("object", DeclType::dynamic())
        .variable("oldObject", DeclType::dynamic())
        .shared_variable("namespaceObject", Arc::clone(&NAMESPACE_TYPE))
        .shared_variable("request", Arc::clone(&REQUEST_TYPE));
    if variables.params {
        environment = environment.variable("params", DeclType::dynamic());
    }
    if variables.authorizer {
        environment = environment
            .variable("authorizer", DeclType::library("kubernetes.authorization.Authorizer"))
            .variable("authorizer.requestResource", DeclType::library("kubernetes.authorization.ResourceCheck"));
    }
    environment
}

/// Declares the variables of a policy with the types of the objects that it is for, to find mistakes.
pub fn declare_type_checked_variables(
    environment: Environment,
    object: &Arc<DeclType>,
    params: Option<Arc<DeclType>>,
) -> Environment {
    let environment = environment
        .shared_variable("object", object.clone())
        .shared_variable("oldObject", object.clone())
        .shared_variable("namespaceObject", Arc::clone(&NAMESPACE_TYPE))
        .shared_variable("request", Arc::clone(&REQUEST_TYPE))
        .variable("authorizer", DeclType::library("kubernetes.authorization.Authorizer"));
    match params {
        Some(params) => environment.shared_variable("params", params),
        None => environment,
    }
}

/// The environment of expressions that select devices.
pub(crate) fn device_environment(field: Field<'_>) -> Environment {
    let by_domain =
        |value: DeclType| DeclType::map(DeclType::map(value, Some(DEVICE_ENTRIES_MAX)), Some(DEVICE_ENTRIES_MAX));
    let mut fields = vec![
        TypeField::new("driver", DeclType::string(Some(63))).required(),
        TypeField::new("attributes", by_domain(DeclType::dynamic())).required(),
        TypeField::new("capacity", by_domain(DeclType::library("kubernetes.Quantity"))).required(),
    ];
    if field.is_enabled("DRAConsumableCapacity") {
        fields.push(TypeField::new("allowMultipleAllocations", DeclType::bool()).required());
    }
    new_environment(field).shared_variable("device", Arc::new(DeclType::named_object("kubernetes.DRADevice", fields)))
}

/// Attributes and capacities of one device.
const DEVICE_ENTRIES_MAX: u64 = 32;

/// The variables that expressions of a policy define for those after them.
#[derive(Clone, Debug, Default)]
pub struct DefinedVariables(HashMap<String, DeclType>);

impl DefinedVariables {
    /// Defines a variable by an expression of this type.
    pub fn define(&mut self, name: &str, value_type: Option<&Type>) {
        self.0.insert(name.to_owned(), value_type.map_or_else(DeclType::dynamic, declared_type));
    }

    /// Declares those of them that an expression may mention: the types of thousands, declared for each of thousands of
    /// expressions, would take minutes.
    pub fn declare_for(&self, expression: &str, environment: Environment) -> Environment {
        let words = expression.split(|c: char| c != '_' && !c.is_ascii_alphanumeric());
        let mentioned = words.flat_map(|word| [Some(word.into()), k8s_cel::unescape(word)]).flatten();
        let fields = mentioned
            .filter_map(|name: Cow<'_, str>| self.0.get_key_value(&*name))
            .map(|(name, decl)| TypeField::new(name.clone(), decl.clone()).required());
        let decl = DeclType::named_object("kubernetes.variables", fields);
        environment.shared_variable("variables", Arc::new(decl))
    }
}

/// The type of a variable with this value, as far as declarations can tell. Like in Kubernetes, objects and values of
/// libraries are of any type.
fn declared_type(value: &Type) -> DeclType {
    match value {
        Type::Bool => DeclType::bool(),
        Type::Int => DeclType::int(),
        Type::Uint => DeclType::uint(),
        Type::Double => DeclType::double(),
        Type::String => DeclType::string(None),
        Type::Bytes => DeclType::bytes(None),
        Type::Duration => DeclType::duration(),
        Type::Timestamp => DeclType::date_time(),
        Type::List(items) => DeclType::list(declared_type(items), None, ListKind::Atomic),
        Type::Map(entry) if matches!(entry.0, Type::String) => DeclType::map(declared_type(&entry.1), None),
        Type::Dyn
        | Type::Error
        | Type::Null
        | Type::Map(_)
        | Type::Object(_)
        | Type::Named(_)
        | Type::Optional(_)
        | Type::Wrapper(_)
        | Type::Message(_)
        | Type::Type(_)
        | Type::Variable(_) => DeclType::dynamic(),
    }
}

impl Field<'_> {
    /// Compiles an expression and reports its errors; `None` if it has any. `text` may be trimmed.
    pub(crate) fn compiled(self, text: &str, environment: &Environment) -> Option<Program> {
        match environment.compile(text) {
            Ok(program) => Some(program),
            // Kubernetes reports an internal error; evaluation reports it again.
            Err(error) if error.is_instantiation() => None,
            Err(error) => {
                self.invalid_as(text, format!("compilation failed: {error}"));
                None
            }
        }
    }

    /// An expression that must evaluate to one of these types.
    pub(crate) fn expression_of(self, text: &str, environment: &Environment, wanted: &[Type]) {
        let Some(program) = self.compiled(text, environment) else { return };
        let found = program.output_type();
        if wanted.iter().any(|one| found.is_exactly(one)) {
            return;
        }
        let detail = match wanted {
            [one] => format!("must evaluate to {one} but got {found}"),
            several => {
                let several: Vec<String> = several.iter().map(ToString::to_string).collect();
                format!("must evaluate to one of [{}] but got {found}", several.join(" "))
            }
        };
        self.invalid_as(text, detail);
    }

    /// An expression that selects devices.
    pub(crate) fn device_expression(self) {
        let (text, environment) = (self.text(), device_environment(self));
        // `cel.bind` belongs to no release.
        if text.contains("cel.bind") {
            return;
        }
        let Some(program) = self.compiled(text, &environment) else { return };
        if !matches!(program.output_type(), Type::Bool | Type::Dyn) {
            self.invalid_text(format!("must evaluate to bool or the unknown type, not {}", program.output_type()));
        }
    }
}

fn new_environment(field: Field<'_>) -> Environment {
    Environment::for_new_expressions(Release(field.release_minor()))
}

fn texts() -> DeclType {
    DeclType::list(DeclType::string(None), None, ListKind::Atomic)
}

fn object_of(name: &str, fields: &[(&str, DeclType)]) -> DeclType {
    DeclType::named_object(name, fields.iter().map(|(name, decl)| TypeField::new(*name, decl.clone())))
}

static REQUEST_TYPE: LazyLock<Arc<DeclType>> = LazyLock::new(|| Arc::new(request_type()));
static NAMESPACE_TYPE: LazyLock<Arc<DeclType>> = LazyLock::new(|| Arc::new(namespace_type()));

fn request_type() -> DeclType {
    let text = || DeclType::string(None);
    let kind = object_of("kubernetes.GroupVersionKind", &[("group", text()), ("version", text()), ("kind", text())]);
    let resource =
        object_of("kubernetes.GroupVersionResource", &[("group", text()), ("version", text()), ("resource", text())]);
    let user = object_of(
        "kubernetes.UserInfo",
        &[("username", text()), ("uid", text()), ("groups", texts()), ("extra", DeclType::map(texts(), None))],
    );
    object_of(
        "kubernetes.AdmissionRequest",
        &[
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", text()),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", user),
            ("dryRun", DeclType::bool()),
            ("options", DeclType::dynamic()),
        ],
    )
}

fn namespace_type() -> DeclType {
    let text = || DeclType::string(None);
    let condition = object_of(
        "kubernetes.NamespaceCondition",
        &[
            ("status", text()),
            ("type", text()),
            ("lastTransitionTime", DeclType::date_time()),
            ("message", text()),
            ("reason", text()),
        ],
    );
    let metadata = object_of(
        "kubernetes.NamespaceMetadata",
        &[
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", DeclType::map(text(), None)),
            ("annotations", DeclType::map(text(), None)),
            ("UID", text()),
            ("creationTimestamp", DeclType::date_time()),
            ("deletionGracePeriodSeconds", DeclType::int()),
            ("deletionTimestamp", DeclType::date_time()),
            ("generation", DeclType::int()),
            ("resourceVersion", text()),
            ("finalizers", texts()),
        ],
    );
    let conditions = DeclType::list(condition, None, ListKind::Atomic);
    object_of(
        "kubernetes.Namespace",
        &[
            ("metadata", metadata),
            ("spec", object_of("kubernetes.NamespaceSpec", &[("finalizers", texts())])),
            ("status", object_of("kubernetes.NamespaceStatus", &[("conditions", conditions), ("phase", text())])),
        ],
    )
}
