//! What is proved about regret in trusted mode, as functions.
