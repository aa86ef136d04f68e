//! References to other objects.

use super::Field;

impl Field<'_> {
    /// A name that is required and a DNS subdomain.
    pub(crate) fn require_object_name(self) {
        if self.require_text() {
            self.dns_subdomain();
        }
    }

    /// A name in a namespace, both required.
    pub(crate) fn secret_reference(self) {
        self.at("name").require_object_name();
        if self.at("namespace").require_text() {
            self.at("namespace").dns_label();
        }
    }

    /// The name of a CSI driver.
    pub(crate) fn csi_driver_name(self) {
        if !self.require_text() {
            return;
        }
        if self.text().len() > 63 {
            self.too_long(63);
        }
        self.check_text(api::validation::validate_dns1123_subdomain(&self.text().to_lowercase()));
    }
}
