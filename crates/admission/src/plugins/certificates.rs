//! CertificateApproval, CertificateSigning, CertificateSubjectRestriction and ClusterTrustBundleAttest.

use access::ResourceAttributes;
use api::json::JsonObject;
use api::quote::Quoted;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use object::unstructured::{get, text};
use serde_json::Value;
use x509_parser::asn1_rs::Tag;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::x509::AttributeTypeAndValue;

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
    let subject =
        requested_subject(&pem).map_err(|error| Refusal::forbidden(format!("failed to parse CSR: {error}")))?;
    if subject.organizations.iter().any(|organization| organization == access::user::MASTERS_GROUP) {
        return Err(Refusal::forbidden(format!(
            "use of {API_SERVER_CLIENT} signer with system:masters group is not allowed"
        )));
    }
    Ok(())
}

/// The parts of a subject that name a user, as a kube-apiserver reads them from the certificate that a signer makes of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RequestedSubject {
    /// The last one; empty if there is none.
    pub(super) common_name: String,
    organizations: Vec<String>,
}

/// The subject of a certificate request in PEM. Text in which different readers could find different requests is refused.
pub(super) fn requested_subject(pem: &[u8]) -> Result<RequestedSubject, &'static str> {
    const NOT_A_REQUEST: &str = "PEM block type must be CERTIFICATE REQUEST";
    let lines = |marker: &[u8]| pem.windows(marker.len()).filter(|part| *part == marker).count();
    let all = [lines(b"-----BEGIN"), lines(b"-----END")];
    let named = [lines(b"-----BEGIN CERTIFICATE REQUEST-----"), lines(b"-----END CERTIFICATE REQUEST-----")];
    if named[0] == 0 {
        return Err(NOT_A_REQUEST);
    }
    if [all, named] != [[1, 1], [1, 1]] {
        return Err("the request must be a single PEM block");
    }
    let (block, _) = Pem::read(std::io::Cursor::new(pem)).map_err(|_| NOT_A_REQUEST)?;
    let (rest, request) =
        X509CertificationRequest::from_der(&block.contents).map_err(|_| "malformed certificate request")?;
    if !rest.is_empty() {
        return Err("trailing data");
    }
    let mut subject = RequestedSubject::default();
    for attribute in request.certification_request_info.subject.iter_attributes() {
        let oid = attribute.attr_type();
        let Some(text) = text_of(attribute) else { continue };
        if *oid == OID_X509_COMMON_NAME {
            subject.common_name = text;
        } else if *oid == OID_X509_ORGANIZATION_NAME {
            subject.organizations.push(text);
        }
    }
    Ok(subject)
}

/// The text of an attribute; `None` for types of values that signers do not read as text.
fn text_of(attribute: &AttributeTypeAndValue<'_>) -> Option<String> {
    let value = attribute.attr_value();
    match value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::NumericString | Tag::Ia5String | Tag::TeletexString => {
            Some(String::from_utf8_lossy(value.data).into_owned())
        }
        Tag::BmpString => {
            let units: Vec<u16> = value
                .data
                .chunks(2)
                .map(|pair| pair.iter().fold(0, |unit, byte| unit << 8 | u16::from(*byte)))
                .collect();
            Some(String::from_utf16_lossy(&units))
        }
        _ => None,
    }
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

#[cfg(test)]
mod tests;
