"""What every driver must do: behaviours, written once, run on each."""
