//! HloModuleProto and HloProto.
