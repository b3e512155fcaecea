"""Training: a network's forward and backward passes as engine programs, losses and optimisers on the host."""

from hexane.train.batches import Batches
from hexane.train.losses import cross_entropy, mse
from hexane.train.optimizers import SGD, Adam, AdamW
from hexane.train.schedules import Schedule
from hexane.train.trainer import StepResult, Trainer

__all__ = ["SGD", "Adam", "AdamW", "Batches", "Schedule", "StepResult", "Trainer", "cross_entropy", "mse"]
