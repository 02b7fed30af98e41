"""report.html of every stage, and the findings of `mybert doctor`, from the files that stages have written."""
