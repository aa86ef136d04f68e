//! CertificateApproval, CertificateSigning, CertificateSubjectRestriction and ClusterTrustBundleAttest.

use access::ResourceAttributes;
use api::json::JsonObject;
use api::quote::Quoted;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use object::unstructured::{get, text};
use serde_json::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Name;

use super::Plugin;
use crate::attributes::Operation;
use crate::chain::{Environment, Write};
use crate::refusal::Refusal;

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";
const API_SERVER_CLIENT: &str = "kubernetes.io/kube-apiserver-client";

pub(super) static APPROVAL: Plugin = Plugin {
    name: "CertificateApproval",
    operations: &[Operation::Update],
    admit: None,
    validate: Some(check_approval),
};

pub(super) static SIGNING: Plugin =
    Plugin { name: "CertificateSigning", operations: &[Operation::Update], admit: None, validate: Some(check_signing) };

pub(super) static SUBJECT_RESTRICTION: Plugin = Plugin {
    name: "CertificateSubjectRestriction",
    operations: &[Operation::Create],
    admit: None,
    validate: Some(check_subject),
};

pub(super) static ATTEST: Plugin = Plugin {
    name: "ClusterTrustBundleAttest",
    operations: &[Operation::Create, Operation::Update],
    admit: None,
    validate: Some(check_attestation),
};

/// True if the user has a verb on a signer, or on all signers of its domain.
fn is_signer_allowed(write: &Write<'_>, environment: &Environment<'_>, verb: &str, signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    [signer, &format!("{domain}/*")].iter().any(|name| {
        let check = ResourceAttributes { group: GROUP, resource: "signers", name, ..ResourceAttributes::default() };
        environment.authorization.is_allowed(write.attributes.user, &check, verb)
    })
}

fn check_approval(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    if write.attributes.subresource != "approval" || !write.attributes.is_resource(GROUP, REQUESTS) {
        return Ok(());
    }
    check_signer(write, environment, "approve")
}

fn check_signing(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    if write.attributes.subresource != "status" || !write.attributes.is_resource(GROUP, REQUESTS) {
        return Ok(());
    }
    let field = |object: Option<&JsonObject>, name| {
        object
            .and_then(|object| get(object, &["status", name]))
            .filter(|value| **value != Value::Array(Vec::new()))
            .cloned()
    };
    let is_changed = |name| field(write.object.as_ref(), name) != field(write.old_object, name);
    if is_changed("certificate") || is_changed("conditions") {
        check_signer(write, environment, "sign")
    } else {
        Ok(())
    }
}

/// The signer of the stored request counts: an update cannot change it.
fn check_signer(write: &Write<'_>, environment: &Environment<'_>, verb: &str) -> Result<(), Refusal> {
    let signer = write.old_object.map(|request| text(request, &["spec", "signerName"])).unwrap_or_default();
    if is_signer_allowed(write, environment, verb, signer) {
        return Ok(());
    }
    Err(Refusal::forbidden(format!("user not permitted to {verb} requests with signerName {}", Quoted(signer))))
}

fn check_subject(write: &mut Write<'_>, _environment: &Environment<'_>) -> Result<(), Refusal> {
    if !write.attributes.is_object(GROUP, REQUESTS) {
        return Ok(());
    }
    let Some(request) = &write.object else { return Ok(()) };
    if text(request, &["spec", "signerName"]) != API_SERVER_CLIENT {
        return Ok(());
    }
    let pem = BASE64_STANDARD.decode(text(request, &["spec", "request"])).unwrap_or_default();
    let organizations =
        organizations_of(&pem).map_err(|error| Refusal::forbidden(format!("failed to parse CSR: {error}")))?;
    if organizations.iter().any(|organization| organization == access::user::MASTERS_GROUP) {
        return Err(Refusal::forbidden(format!(
            "use of {API_SERVER_CLIENT} signer with system:masters group is not allowed"
        )));
    }
    Ok(())
}

fn organizations_of(pem: &[u8]) -> Result<Vec<String>, &'static str> {
    with_subject(pem, |subject| {
        subject.iter_organization().filter_map(|name| name.as_str().ok()).map(str::to_owned).collect()
    })
}

/// The common name of a certificate request in PEM; empty if it has none.
pub(super) fn common_name_of(pem: &[u8]) -> Result<String, &'static str> {
    with_subject(pem, |subject| {
        let mut names = subject.iter_common_name().filter_map(|name| name.as_str().ok());
        names.next().unwrap_or_default().to_owned()
    })
}

fn with_subject<T>(pem: &[u8], read: impl FnOnce(&X509Name<'_>) -> T) -> Result<T, &'static str> {
    const NOT_A_REQUEST: &str = "PEM block type must be CERTIFICATE REQUEST";
    let (block, _) = Pem::read(std::io::Cursor::new(pem)).map_err(|_| NOT_A_REQUEST)?;
    if block.label != "CERTIFICATE REQUEST" {
        return Err(NOT_A_REQUEST);
    }
    let (_, request) =
        X509CertificationRequest::from_der(&block.contents).map_err(|_| "malformed certificate request")?;
    Ok(read(&request.certification_request_info.subject))
}

fn check_attestation(write: &mut Write<'_>, environment: &Environment<'_>) -> Result<(), Refusal> {
    if !write.attributes.is_resource(GROUP, "clustertrustbundles") {
        return Ok(());
    }
    let Some(bundle) = &write.object else { return Ok(()) };
    let signer = text(bundle, &["spec", "signerName"]);
    let is_unchanged = write.attributes.operation == Operation::Update
        && write.old_object.is_some_and(|old| without_collected_fields(old) == without_collected_fields(bundle));
    if signer.is_empty() || is_unchanged || is_signer_allowed(write, environment, "attest", signer) {
        return Ok(());
    }
    Err(Refusal::forbidden(format!("user not permitted to attest for signerName {}", Quoted(signer))))
}

/// An object without what the garbage collector and the server change.
fn without_collected_fields(object: &JsonObject) -> JsonObject {
    let mut object = object.clone();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion", "generation"] {
            metadata.remove(field);
        }
    }
    object
}
