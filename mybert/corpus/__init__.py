"""From documents to pretraining examples: files → documents → sentences → segment pairs → an Arrow dataset."""
