"""Reports and frames as versioned JSON and back: pure, bounded, and safe to point at a file that a stranger wrote."""
