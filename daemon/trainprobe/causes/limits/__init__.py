"""What runs out, breaks or is left behind: one rule per file, from a rank's situation to notices."""
