//! Properties of apply and of field sets.
