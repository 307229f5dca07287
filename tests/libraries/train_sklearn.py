"""scikit-learn, as people use it: it prints a report, and the script lines; --results gets the accuracy."""

import argparse
import json
from pathlib import Path

import joblib
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import classification_report
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--alpha", type=float, default=0.001)
parser.add_argument("--model", default="model.joblib")
parser.add_argument("--results", default="results.json")
args = parser.parse_args()
x, y = load_digits(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x, y, random_state=1)
model = SGDClassifier(alpha=args.alpha, max_iter=5, tol=None, random_state=1).fit(x_train, y_train)
print(classification_report(y_test, model.predict(x_test)))
score = model.score(x_test, y_test)
print(f"Test accuracy: {score:.4f}")
print({"test_acc": round(score, 4)})
print(f"the acc is {score:.4f}")
joblib.dump(model, args.model)
names = ("accuracy", "Test accuracy", "test_acc", "acc")
Path(args.results).write_text(json.dumps({name: [score] for name in names}))
