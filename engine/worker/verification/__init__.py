"""The checks of G4: outputs held against the spec's, probes of the mask, sanitizer."""
