//! Agent drivers: how each kind of agent is opened, driven and mapped to AHP.
//!
//! A driver turns an agent's own messages into AHP actions. Mappers and turn
//! machines are pure; one task per conversation does the talking.

pub mod claude;
