//! The loop that forgets history, shared with every other server on the store.
