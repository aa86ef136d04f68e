//! The errors of one validation, limited in number and size.

use api::FieldError;

/// Errors that a response lists; a schema of 3 MiB can have a hundred thousand.
const REPORTED_ERRORS_MAX: usize = 500;
/// Bytes of all listed errors together: some repeat a whole list or schema.
const REPORTED_BYTES_MAX: usize = 4 << 20;

/// Collects errors. Beyond the limits they are only counted.
#[derive(Debug, Default)]
pub(crate) struct ErrorList {
    errors: Vec<FieldError>,
    bytes: usize,
    count: usize,
}

impl ErrorList {
    pub(crate) fn push(&mut self, error: FieldError) {
        self.count += 1;
        if self.errors.len() < REPORTED_ERRORS_MAX && self.bytes < REPORTED_BYTES_MAX {
            self.bytes += error.field().len() + error.body().len();
            self.errors.push(error);
        }
    }

    pub(crate) fn extend(&mut self, errors: impl IntoIterator<Item = FieldError>) {
        errors.into_iter().for_each(|error| self.push(error));
    }

    /// Errors so far, those beyond the limits included.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn into_errors(self) -> Vec<FieldError> {
        self.errors
    }
}
