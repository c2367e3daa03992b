"""The reader's language: what is English in the report and in the programs, said in another one where it is shown."""
