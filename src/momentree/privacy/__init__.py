"""Sensitivity, accounts, calibration, certificate."""
