"""What runs out: one rule per file, from a rank's situation to notices."""
