"""Generates the texts of the demo: account books of an invented country.

Every book has its own people, places and goods. Entries are numbered and dated, so that the text reveals its
position; payments, hidden things, journeys and letters are recorded, and questions refer to them many entries
later, so that distant content matters too. Book n of a seed is always the same text, whatever other books are made.
"""

import random

SYLLABLES = {
    "first": ["Al", "Bre", "Co", "Da", "El", "Fa", "Gri", "Hal", "I", "Jo", "Ka", "Lo", "Mi", "Ne", "Or", "Pe", "Ro",
              "Sa", "Ti", "Ul", "Va", "Wen", "Ys", "Zo"],
    "middle": ["", "", "la", "ri", "mo", "ne", "da", "vi", "su", "ko"],
    "last": ["n", "ra", "s", "mund", "th", "lia", "ric", "ven", "da", "l", "na", "bert"],
}
PLACE_FRONT = ["Ash", "Black", "Cold", "Deep", "East", "Fox", "Grey", "High", "Iron", "Long", "Mill", "North", "Oak",
               "Red", "Salt", "Stone", "West", "White"]
PLACE_BACK = ["bridge", "combe", "field", "ford", "gate", "ham", "hill", "mere", "moor", "port", "well", "wick"]
GOODS = ["barley", "rope", "salt", "lamp oil", "wool", "iron nails", "honey", "timber", "candles", "leather", "apples",
         "slate", "wax", "linen", "charcoal", "fish", "tallow", "flour"]
THINGS = ["the brass key", "the green ledger", "the silver cup", "the old map", "the glass bell", "the blue coat",
          "the seal ring", "the long knife", "the small drum", "the red chest", "the bone flute", "the clock"]
WEATHER = ["rain from the hills", "a hard frost", "fog on the river", "a dry wind", "snow in the night", "a clear sky"]
LETTER_TURNS = ["I hope the roof holds.", "The children ask for you.", "Send word before the frost.",
                "The road is open again.", "Do not trust the miller.", "We shall count again at the end of the month."]
ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]


class Book:
    """An account book while it is written: the recorded facts and the questions they allow."""

    def __init__(self, seed, number, questions):
        self.question_weight = questions
        self.random = random.Random(f"{seed} {number}")
        pick = self.random
        self.people = self._distinct(9, lambda: "".join(pick.choice(SYLLABLES[part]) for part in SYLLABLES))
        self.places = self._distinct(6, lambda: pick.choice(PLACE_FRONT) + pick.choice(PLACE_BACK))
        self.goods = pick.sample(GOODS, 7)
        self.things = pick.sample(THINGS, 6)
        self.entry = 0
        self.day = pick.randint(1, 5)
        self.payments = []  # (day, payer, payee, marks, good)
        self.hidden = {}  # thing → place
        self.whereabouts = {}  # person → place

    def _distinct(self, count, make):
        found = []
        while len(found) < count:
            name = make()
            if name not in found:
                found.append(name)
        return found

    def write(self, characters):
        parts = [f"The book of {self.places[0]}, kept by {self.people[0]}.\n"]
        length = 0
        while length < characters:
            part = self._next_entry()
            parts.append(part)
            length += len(part)
        return "".join(parts)

    def _next_entry(self):
        self.entry += 1
        self.day += self.random.choice([0, 1, 1, 2])
        kinds = [self._payment, self._hiding, self._journey, self._letter, self._weather, self._question]
        text = self.random.choices(kinds, weights=[5, 3, 3, 2, 1, self.question_weight])[0]()
        text = f"Entry {self.entry}, day {self.day}. {text}\n"
        if self.entry % 10 == 0:
            leaf = self.entry // 10
            name = ORDINALS[leaf - 1] if leaf <= len(ORDINALS) else f"{leaf}th"
            text += f"Here ends the {name} leaf. Present were {', '.join(self.people[:4])} and {self.people[4]}.\n"
        return text

    def _payment(self):
        payer, payee = self.random.sample(self.people, 2)
        marks, good = self.random.randint(2, 99), self.random.choice(self.goods)
        self.payments.append((self.day, payer, payee, marks, good))
        return f"{payer} paid {marks} marks to {payee} for {good}."

    def _hiding(self):
        thing, place, person = (self.random.choice(group) for group in (self.things, self.places, self.people))
        self.hidden[thing] = place
        return f"{person} left {thing} at {place}."

    def _journey(self):
        person, place = self.random.choice(self.people), self.random.choice(self.places)
        before = self.whereabouts.get(person)
        self.whereabouts[person] = place
        return f"{person} went to {place}." if before in (None, place) else f"{person} went from {before} to {place}."

    def _letter(self):
        writer, reader = self.random.sample(self.people, 2)
        news = self.random.choice([self._payment, self._hiding, self._journey])()
        return f"A letter came. Dear {reader}, {news} {self.random.choice(LETTER_TURNS)} Yours, {writer}."

    def _weather(self):
        return f"There was {self.random.choice(WEATHER)} over {self.random.choice(self.places)}."

    def _question(self):
        asked = []
        if self.payments:
            # Uniform over all earlier payments, so most answers are far back.
            day, payer, payee, marks, good = self.random.choice(self.payments)
            asked += [f"Who paid {payee} for {good} on day {day}? {payer}.",
                      f"How many marks did {payer} pay to {payee} on day {day}? {marks}.",
                      f"What did {payer} buy from {payee} on day {day}? {good}."]
        if self.hidden:
            thing = self.random.choice(sorted(self.hidden))
            asked.append(f"Where is {thing}? At {self.hidden[thing]}.")
        if self.whereabouts:
            person = self.random.choice(sorted(self.whereabouts))
            asked.append(f"Where is {person}? At {self.whereabouts[person]}.")
        return self.random.choice(asked) if asked else self._weather()


def book(seed, number, characters, questions=6):
    """Returns book `number` with at least `characters` characters; `questions` is the frequency of questions."""
    return Book(seed, number, questions).write(characters)
