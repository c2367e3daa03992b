"""From snapshots to the report: figures, sentences, the verdict, and two lives as one."""
