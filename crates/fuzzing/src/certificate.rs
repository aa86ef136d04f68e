//! Certificates of clients and of CA bundles.

use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::{CertificateDer, UnixTime};
use transport::{ClientCaBundle, X509Subject};

/// A CA, a client certificate that it signed for jane, the content of a subject, and PEM.
pub(crate) const HEX_SEEDS: &[&str] = &[
    CA_HEX,
    CLIENT_HEX,
    "310d300b060355040a0c046465767331193017060355040313106b756265726e657465732d61646d696e3111300f06092b0601040183c253020c027531",
    "2d2d2d2d2d424547494e2043455254494649434154452d2d2d2d2d0a4d4949420a2d2d2d2d2d454e442043455254494649434154452d2d2d2d2d0a",
];
pub(crate) const HEX_DICTIONARY: &[&str] = &[
    "30",
    "31",
    "06",
    "0c",
    "13",
    "1e",
    "80",
    "81",
    "82",
    "84",
    "a0",
    "a3",
    "00",
    "ff",
    "0603550403",
    "060355040a",
    "0101ff",
    "06092b0601040183c25302",
    "170d",
    "180f",
    "0a",
    "2d2d2d2d2d",
];

const CA_HEX: &str = "3082018130820127a00302010202143b00b139e4912ef545eacb5462631fe902ceb9f5300a06082a8648ce3d040302300d310b300906035504030c0263613020170d3236313131383034353432325a180f32313236313032353034353432325a300d310b300906035504030c0263613059301306072a8648ce3d020106082a8648ce3d030107034200046509bdedea4fc00a21c31639fc7bf1075b55295ef97eed48e118cbc8e121382eb8bbdae82435ae7f135827a45078a130c65f547b68b3e989318ee7b6958e1bc7a3633061301d0603551d0e041604148c7d453866b2128600ffeb1b1215f21934d67a9b301f0603551d230418301680148c7d453866b2128600ffeb1b1215f21934d67a9b300f0603551d130101ff040530030101ff300e0603551d0f0101ff040403020204300a06082a8648ce3d04030203480030450220282fd5f7696040b62fcf49e324d565be3b1d9de7ac8a4356637a5538f68aca9a022100bb31699ba65b8cbece6b41a331c2406f5e1fc757c5d4f6a1a51797c6e698cbe8";
const CLIENT_HEX: &str = "3082018d30820133a003020102020105300a06082a8648ce3d040302300d310b300906035504030c0263613020170d3236313131383034353432325a180f32313236313032353034353432325a3038310d300b060355040a0c046465767331183016060355040a0c0f73797374656d3a61756469746f7273310d300b06035504030c046a616e653059301306072a8648ce3d020106082a8648ce3d030107034200041bd6c58b267a8d35e974c66768a45d5425286f6d257d4311951ca30b6c15c0319335e96a823f3f96d2a60afe6e6edf4dafdb8e10f7d404d25c43a4ac3096e66ca357305530130603551d25040c300a06082b06010505070302301d0603551d0e0416041446e9c12b005304f1af3a0169e6a41e7876999585301f0603551d230418301680148c7d453866b2128600ffeb1b1215f21934d67a9b300a06082a8648ce3d0403020348003045022011e52857359245553af9bdf030cfb969fb7c2d731e93d2e42e4b963eb59f237e0221008d9a098207b6893578f2f4ba12dc99f8054baec761f5004b61b6ab79be34700b";

/// In the validity period of both certificates: 2026-12-01.
const NOW_SECONDS: u64 = 1_796_083_200;

/// The bundle with the CA of the seeds.
fn trusted_bundle() -> &'static ClientCaBundle {
    static BUNDLE: OnceLock<ClientCaBundle> = OnceLock::new();
    BUNDLE.get_or_init(|| ClientCaBundle::from_pem(&to_pem(&crate::target::decode_hex(CA_HEX)), "seed").expect("a CA"))
}

fn to_pem(der: &[u8]) -> Vec<u8> {
    let body = STANDARD.encode(der);
    let lines = body.as_bytes().chunks(64).flat_map(|line| [line, b"\n"]).flatten().copied().collect::<Vec<u8>>();
    [b"-----BEGIN CERTIFICATE-----\n", &lines[..], b"-----END CERTIFICATE-----\n"].concat()
}

/// Any bytes are a certificate, a bundle, a subject, or an error. Only the certificate that the CA signed is a user, and only
/// with its own subject.
pub fn certificate(input: &[u8]) {
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(NOW_SECONDS));
    let chains: [&[CertificateDer<'_>]; 2] =
        [&[CertificateDer::from(input)], &[CertificateDer::from(input), CertificateDer::from(input)]];
    for chain in chains {
        match trusted_bundle().verify_client(chain, now) {
            Ok(subject) => {
                assert_eq!(subject.common_name, "jane");
                assert_eq!(subject.organizations, ["devs", "system:auditors"]);
                assert!(subject.uids.is_empty());
            }
            Err(error) => assert!(error.to_string().starts_with("x509: ")),
        }
    }
    for pem in [input, &to_pem(input)] {
        match ClientCaBundle::from_pem(pem, "fuzzed") {
            Ok(bundle) => {
                assert!(bundle.overlaps(&bundle));
                // What a fuzzed bundle trusts is for its owner to say; that it is checked must not fail.
                let _ = bundle.verify_client(&[CertificateDer::from(crate::target::decode_hex(CLIENT_HEX))], now);
            }
            Err(error) => assert!(!error.is_empty()),
        }
    }
    if let Some(subject) = X509Subject::from_der(input) {
        assert_eq!(X509Subject::from_der(&encode_subject(&subject)), Some(subject), "encoding changes the subject");
    }
}

/// A value in DER, with the shortest form of its length.
fn encode_der(tag: u8, content: &[u8]) -> Vec<u8> {
    match content.len() {
        length @ 0..=127 => [&[tag, u8::try_from(length).expect("below 128")], content].concat(),
        length => {
            let bytes = length.to_be_bytes();
            let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len() - 1);
            let count = u8::try_from(bytes.len() - first).expect("at most eight");
            [&[tag, 0x80 | count], &bytes[first..], content].concat()
        }
    }
}

fn encode_subject(subject: &X509Subject) -> Vec<u8> {
    const UTF8_STRING: u8 = 0x0c;
    let attribute = |oid: &[u8], text: &str| {
        let content = [encode_der(6, oid), encode_der(UTF8_STRING, text.as_bytes())].concat();
        encode_der(0x31, &encode_der(0x30, &content))
    };
    let organizations = subject.organizations.iter().map(|text| attribute(&[0x55, 4, 10], text));
    let uids = subject.uids.iter().map(|text| attribute(&[0x2b, 6, 1, 4, 1, 0x83, 0xc2, 0x53, 2], text));
    let name = attribute(&[0x55, 4, 3], &subject.common_name);
    organizations.chain(uids).flatten().chain(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_ca_and_its_client() {
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(NOW_SECONDS));
        let client = CertificateDer::from(crate::target::decode_hex(CLIENT_HEX));
        let subject = trusted_bundle().verify_client(&[client], now).expect("the CA signed it");
        assert_eq!(subject.common_name, "jane");
        assert_eq!(X509Subject::from_der(&encode_subject(&subject)), Some(subject));
        let subject = X509Subject::from_der(&crate::target::decode_hex(HEX_SEEDS[2])).expect("a subject");
        assert_eq!((subject.common_name.as_str(), subject.uids), ("kubernetes-admin", vec!["u1".to_owned()]));
        assert!(ClientCaBundle::from_pem(&to_pem(&crate::target::decode_hex(CLIENT_HEX)), "client").is_err());
    }
}
