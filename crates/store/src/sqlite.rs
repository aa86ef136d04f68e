//! The SQLite backend: one file, shared by the server processes of one machine.
