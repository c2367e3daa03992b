"""A report in the forms that people open elsewhere: the page, live or as one file to mail, and a trace for Perfetto."""
