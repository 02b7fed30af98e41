"""From a checkpoint to what others use: other formats in and out, bundles for the Hub."""
