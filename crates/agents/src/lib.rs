//! Agent drivers: how each kind of agent is started, driven and mapped to AHP.
//!
//! A driver converts an agent's messages to AHP actions. Mappers and turn machines
//! are pure; one task per conversation does the I/O.

pub mod claude;
