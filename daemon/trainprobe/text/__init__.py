"""Text in the reader's language, made where it is shown: translations (gettext's .po), and what renders with them."""
