//! Keys that sign and verify tokens: RSA and ECDSA on three NIST curves, as in kube-apiserver.

use std::fmt;

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair, ParsedPublicKey, RsaKeyPair};
use aws_lc_rs::{digest, error::Unspecified};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use x509_parser::asn1_rs::FromDer as _;
use x509_parser::pem::Pem;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

/// A signature algorithm. It is determined by the key, never by the token's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// ECDSA on P-256.
    Es256,
    /// ECDSA on P-384.
    Es384,
    /// ECDSA on P-521.
    Es512,
    /// RSA with PKCS #1 v1.5.
    Rs256,
}

/// A private key with its public half.
pub struct SigningKey {
    key_pair: PrivateKeyPair,
    public: VerifyingKey,
}

/// A public key and its key id.
#[derive(Clone)]
pub struct VerifyingKey {
    algorithm: Algorithm,
    id: String,
    jwk: Jwk,
    key: ParsedPublicKey,
}

/// A JSON Web Key as `/openid/v1/jwks` serves it, with fields in Kubernetes' order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Jwk {
    #[serde(rename = "use")]
    usage: &'static str,
    kty: &'static str,
    kid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    crv: Option<&'static str>,
    alg: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    x: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    y: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    e: Option<String>,
}

/// A key file cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The file contains no private key that can sign tokens.
    #[error("no RSA or ECDSA private key in PEM was found")]
    NoPrivateKey,
    /// The file contains no key that can verify tokens.
    #[error("no RSA or ECDSA key in PEM was found")]
    NoKey,
    /// The file contains a key of an unsupported type or size.
    #[error("the {label} is neither RSA of 2048 to 8192 bits nor ECDSA on P-256, P-384 or P-521")]
    Unsupported {
        /// The label of the key's PEM block.
        label: String,
    },
}

enum PrivateKeyPair {
    Ecdsa(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

const CURVES: [(Algorithm, &EcdsaSigningAlgorithm); 3] = [
    (Algorithm::Es256, &signature::ECDSA_P256_SHA256_FIXED_SIGNING),
    (Algorithm::Es384, &signature::ECDSA_P384_SHA384_FIXED_SIGNING),
    (Algorithm::Es512, &signature::ECDSA_P521_SHA512_FIXED_SIGNING),
];

/// Returns the PEM blocks of a text, which may be indented; skips blocks that are not base64.
///
/// rustls' PEM reader knows a fixed set of labels; this one keeps every label, so that errors can name it.
pub(super) fn blocks(text: &str) -> Vec<Pem> {
    let text: String = text.lines().flat_map(|line| [line.trim(), "\n"]).collect();
    Pem::iter_from_buffer(text.as_bytes()).filter_map(Result::ok).collect()
}

impl SigningKey {
    /// Reads the first private key of a PEM file, in PKCS #8, PKCS #1 or SEC 1.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        let is_private = |block: &Pem| block.label.ends_with("PRIVATE KEY");
        let block = blocks(text).into_iter().find(is_private).ok_or(KeyError::NoPrivateKey)?;
        Self::from_der(&block.contents).ok_or(KeyError::Unsupported { label: block.label })
    }

    fn from_der(der: &[u8]) -> Option<Self> {
        if let Ok(pair) = RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der)) {
            let public =
                VerifyingKey::from_spki(AsDer::<PublicKeyX509Der<'_>>::as_der(pair.public_key()).ok()?.as_ref())?;
            return Some(Self { key_pair: PrivateKeyPair::Rsa(pair), public });
        }
        CURVES.iter().find_map(|(_, curve)| {
            let pair = EcdsaKeyPair::from_private_key_der(curve, der).ok()?;
            let public =
                VerifyingKey::from_spki(AsDer::<PublicKeyX509Der<'_>>::as_der(pair.public_key()).ok()?.as_ref())?;
            Some(Self { key_pair: PrivateKeyPair::Ecdsa(pair), public })
        })
    }

    /// Returns the public half.
    pub fn public(&self) -> &VerifyingKey {
        &self.public
    }

    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Unspecified> {
        let random = SystemRandom::new();
        match &self.key_pair {
            PrivateKeyPair::Ecdsa(pair) => Ok(pair.sign(&random, message)?.as_ref().to_vec()),
            PrivateKeyPair::Rsa(pair) => {
                let mut signature_bytes = vec![0; pair.public_modulus_len()];
                pair.sign(&signature::RSA_PKCS1_SHA256, &random, message, &mut signature_bytes)?;
                Ok(signature_bytes)
            }
        }
    }
}

impl VerifyingKey {
    /// Reads every key of a PEM file; of private keys the public half.
    pub fn all_from_pem(text: &str) -> Result<Vec<Self>, KeyError> {
        let mut keys = Vec::new();
        for block in blocks(text) {
            let key = match block.label.as_str() {
                "PUBLIC KEY" => Self::from_spki(&block.contents),
                label if label.ends_with("PRIVATE KEY") => SigningKey::from_der(&block.contents).map(|key| key.public),
                _ => continue,
            };
            keys.push(key.ok_or(KeyError::Unsupported { label: block.label })?);
        }
        if keys.is_empty() { Err(KeyError::NoKey) } else { Ok(keys) }
    }

    /// Returns the key id: the base64url SHA-256 of the public key, as in Kubernetes.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the only algorithm this key accepts.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the key for the JWKS document.
    pub fn jwk(&self) -> &Jwk {
        &self.jwk
    }

    pub(super) fn verify(&self, message: &[u8], signature_bytes: &[u8]) -> bool {
        self.key.verify_sig(message, signature_bytes).is_ok()
    }

    fn from_spki(spki: &[u8]) -> Option<Self> {
        let algorithms: [(Algorithm, &'static dyn signature::VerificationAlgorithm); 4] = [
            (Algorithm::Es256, &signature::ECDSA_P256_SHA256_FIXED),
            (Algorithm::Es384, &signature::ECDSA_P384_SHA384_FIXED),
            (Algorithm::Es512, &signature::ECDSA_P521_SHA512_FIXED),
            (Algorithm::Rs256, &signature::RSA_PKCS1_2048_8192_SHA256),
        ];
        let (algorithm, key) = algorithms
            .into_iter()
            .find_map(|(algorithm, verification)| Some((algorithm, ParsedPublicKey::new(verification, spki).ok()?)))?;
        let id = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, spki));
        let jwk = Jwk::new(algorithm, id.clone(), spki)?;
        Some(Self { algorithm, id, jwk, key })
    }
}

impl Jwk {
    fn new(algorithm: Algorithm, kid: String, spki: &[u8]) -> Option<Self> {
        let (_, spki) = SubjectPublicKeyInfo::from_der(spki).ok()?;
        let alg = algorithm.name();
        let jwk = Self { usage: "sig", kty: "RSA", kid, crv: None, alg, x: None, y: None, n: None, e: None };
        let encode = |bytes: &[u8]| Some(URL_SAFE_NO_PAD.encode(bytes));
        match spki.parsed().ok()? {
            PublicKey::RSA(key) => {
                let unsigned = |number: &[u8]| encode(number.strip_prefix(&[0]).unwrap_or(number));
                Some(Self { n: unsigned(key.modulus), e: unsigned(key.exponent), ..jwk })
            }
            PublicKey::EC(point) => {
                // An uncompressed point: the byte 4, then both coordinates.
                let (x, y) = point.data().strip_prefix(&[4]).map(|point| point.split_at(point.len() / 2))?;
                Some(Self { kty: "EC", crv: algorithm.curve(), x: encode(x), y: encode(y), ..jwk })
            }
            PublicKey::DSA(_) | PublicKey::GostR3410(_) | PublicKey::GostR3410_2012(_) | PublicKey::Unknown(_) => None,
        }
    }
}

impl Algorithm {
    /// Returns the value of the `alg` header.
    pub fn name(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Es512 => "ES512",
            Self::Rs256 => "RS256",
        }
    }

    fn curve(self) -> Option<&'static str> {
        match self {
            Self::Es256 => Some("P-256"),
            Self::Es384 => Some("P-384"),
            Self::Es512 => Some("P-521"),
            Self::Rs256 => None,
        }
    }
}

/// Omits the private key.
impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("public", &self.public).finish_non_exhaustive()
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifyingKey").field("algorithm", &self.algorithm).field("id", &self.id).finish_non_exhaustive()
    }
}
