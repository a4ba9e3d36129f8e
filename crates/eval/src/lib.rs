//! The reference evaluator: every opcode, every type, every device.
