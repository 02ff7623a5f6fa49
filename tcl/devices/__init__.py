"""Devices that models are measured on and compiled for."""
