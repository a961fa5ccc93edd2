"""The page of a study: tables and pictures of the records that its plan asks for."""
