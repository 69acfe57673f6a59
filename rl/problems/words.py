"""Word problems made from templates: what a real pretrained model can learn on.

Small sums in everyday words, of one to three steps, without a download. Sentences,
names and things are drawn; held-out problems have templates of their own, so that what
is learnt must carry over to other wordings. In some a story names more numbers than its
question needs, and has several questions, so that both must be read.
"""

import re
from typing import Annotated

import numpy as np

from configs.schema import Count, Range
from rl.types import Problem
from rollout.seeds import generator

_NAMES = dict(
    name.split(":")
    for name in (
        "Ada:she Ben:he Carla:she Dev:he Elena:she Farid:he Grace:she Hugo:he Ines:she "
        "Jamal:he Kira:she Leo:he Maya:she Nils:he Olga:she Pedro:he Quinn:he Rosa:she "
        "Sami:he Tara:she Umar:he Vera:she Wang:he Yara:she Zoe:she Anton:he Bella:she "
        "Chen:he Dora:she Emil:he Fatima:she George:he Hana:she Ivan:he Julia:she "
        "Karim:he Lena:she Marco:he Nora:she Oscar:he"
    ).split()
)
_WORDS = {
    "things": "apples pencils marbles stickers books shells coins cookies cards stamps "
    "balloons flowers oranges buttons stones toys cups candles beads ribbons crayons "
    "peaches tickets nuts bottles hats eggs muffins plums keys".split(),
    "places": "boxes bags baskets jars drawers crates trays bowls packs bins".split(),
    "gets": ["finds", "buys", "gets", "is given", "collects", "wins", "receives"],
    "loses": ["gives away", "loses", "sells", "throws out", "drops", "donates"],
}

# A template with its answer, by the number of steps. {who} and {other} are names, {he}
# and {his} go with {who}, {things} and {others} are two kinds, {a} to {d} are numbers,
# not all of them needed; any other braces hold an expression in these, so that what is
# taken away or shared out always comes out whole and positive. Many of them: of few, a
# policy can know by heart which sum goes with which, and need not read.
_TRAIN = {
    1: {
        "{who} has {a} {things}. {who} {gets} {b} more {things}. How many {things} "
        "does {who} have now?": "a+b",
        "There are {a} {things} on the table and {b} {things} on the floor. How many "
        "{things} are there in all?": "a+b",
        "{who} has {a} {things}. {other} has {b} {things} more than {who}. How many "
        "{things} does {other} have?": "a+b",
        "{who} {gets} {a} {things} on Monday and {b} {things} on Tuesday. How many "
        "{things} is that?": "a+b",
        "{who} puts {a} {things} into an empty sack. Later {other} puts in {b}. How "
        "many {things} are in the sack?": "a+b",
        "A cook uses {a} {things} for lunch and {b} for dinner. How many {things} "
        "does the cook use?": "a+b",
        "The sun shone on {a} days this spring and on {b} days this fall. On how "
        "many days did it shine in all?": "a+b",
        "{who} drives {a} miles to the lake and {b} miles on to the village. How far "
        "does {who} drive, in miles?": "a+b",
        "There were {a} birds on a roof. Then {b} birds landed there. How many birds "
        "are on the roof now?": "a+b",
        "After giving {a} {things} to {other}, {who} has {b}. How many {things} did "
        "{who} have before?": "a+b",
        "{who} has {a+b} {things}. {who} {loses} {a} of them. How many {things} does "
        "{who} have left?": "b",
        "{who} needs {a+b} {things} and has {a} {things}. How many more {things} "
        "does {who} need?": "b",
        "There are {a+b} birds in a tree. {a} of them fly away. How many birds "
        "stay?": "b",
        "A rope is {a+b} feet long. {who} cuts off {a} feet. How many feet long is "
        "the rope now?": "b",
        "Of {a+b} {things} on a shelf, {a} belong to {who} and the others to "
        "{other}. How many belong to {other}?": "b",
        "{who} had {a} {things}. Now {who} has {a+b}. How many {things} did {who} "
        "get?": "b",
        "A book has {a+b} chapters. {who} has finished {a} of them. How many "
        "chapters are still to come?": "b",
        "{who} throws a ball {a+b} feet and {other} throws it {a}. By how many feet "
        "does {who} win?": "b",
        "{who} has {a+b} {things} and {other} has {a}. How many fewer does {other} "
        "have?": "b",
        "{who} pays {a+b} dollars for a hat and a pen. The hat costs {a} dollars. "
        "How many dollars does the pen cost?": "b",
        "{who} has {a} {places}. There are {b} {things} in each of them. How many "
        "{things} does {who} have?": "a*b",
        "{who} buys {a} {things} for {b} dollars each. How many dollars does {who} "
        "pay?": "a*b",
        "{who} runs {a} miles every day. How many miles does {who} run in {b} "
        "days?": "a*b",
        "A wall has {a} rows of {b} tiles. How many tiles are on the wall?": "a*b",
        "{who} gives {b} {things} to each of {a} friends. How many {things} does "
        "{who} give away?": "a*b",
        "One ticket costs {a} dollars. How many dollars do {b} tickets cost?": "a*b",
        "{who} shares {a*b} {things} equally among {a} friends. How many {things} "
        "does each friend get?": "b",
        "{who} cuts a ribbon of {a*b} inches into {a} equal pieces. How many inches "
        "long is each piece?": "b",
        "{a} {things} cost {a*b} dollars. How many dollars does one cost?": "b",
        "{a*b} students sit in {a} equal rows. How many students are in a row?": "b",
        "{who} puts {a*b} {things} into {places} of {a} each. How many {places} does "
        "{who} fill?": "b",
        "A machine makes {a*b} {things} in {a} hours. How many {things} does it make "
        "in an hour?": "b",
        "{who} had {a} {things} and found {b} more on the way home. How many "
        "{things} does {he} have now?": "a+b",
        "There are {a} boys and {b} girls in the choir. How many children sing in "
        "it?": "a+b",
        "{who} ate {a} grapes and {other} ate {b}. How many grapes did they eat in "
        "total?": "a+b",
        "A plant was {a} inches tall and has grown {b} inches since. How tall is it "
        "now, in inches?": "a+b",
        "{who} spent {a} dollars on lunch and {b} dollars on a book. How much did "
        "{he} spend altogether, in dollars?": "a+b",
        "{who} scored {a} points in the first round and {b} in the second. What is "
        "{his} total score?": "a+b",
        "{b} more cars came to a lot where {a} cars were parked. How many cars are "
        "in the lot now?": "a+b",
        "A truck carries {a} crates of milk and {b} crates of juice. How many crates "
        "does it carry?": "a+b",
        "There are {a} coins in a jar. {who} drops in {b} more. How many coins are "
        "in it now?": "a+b",
        "{who} lost {a} {things} and still has {b}. How many did {he} start "
        "with?": "a+b",
        "{who} sold {a} {things} and has {b} left to sell. How many were there at "
        "the start?": "a+b",
        "{who} took {a} {things} out of a closet, and {b} were still in it. How many "
        "were in it at first?": "a+b",
        "The red team won {a} games. The blue team won {b} more games than that. How "
        "many games did the blue team win?": "a+b",
        "{who} had {a+b} dollars and spent {a} dollars on a game. How much money is "
        "left, in dollars?": "b",
        "{who} made {a+b} sandwiches. The guests ate {a}. How many sandwiches "
        "remain?": "b",
        "There were {a+b} children in the pool. {a} went home. How many are still in "
        "the pool?": "b",
        "{who} wants to see {a+b} films this year and has seen {a} so far. How many "
        "more must {he} see?": "b",
        "{a+b} people were invited, but {a} of them did not come. How many came?": "b",
        "{who} answered {a+b} questions, {a} of them wrong. How many did {he} get "
        "right?": "b",
        "A theater has {a+b} seats. {a} of them are taken. How many seats are "
        "free?": "b",
        "{who} caught {a+b} fish and {other} caught {a}. What is the difference "
        "between the two catches?": "b",
        "It was {a+b} degrees at noon, and {a} degrees colder at night. How many "
        "degrees was it at night?": "b",
        "A pole is {a+b} meters high and a tree {a} meters. How much higher is the "
        "pole, in meters?": "b",
        "{who} owns {a+b} {things}, of which {a} are damaged. How many are not?": "b",
        "{who} planted {a+b} seeds, and {a} of them sprouted. How many did not?": "b",
        "{who} began the week with {a} {things} and ended it with {a+b}. How many "
        "{things} did {he} gain?": "b",
        "{who} had {a+b} {things}. After {he} gave some to {other}, {a} were left. "
        "How many did {he} give to {other}?": "b",
        "A bowl had {a+b} nuts in it. Some were eaten, and now there are only {a}. "
        "How many nuts were eaten?": "b",
        "{who} wants a radio for {a+b} dollars and has saved {a} dollars. How much "
        "more money does {he} need, in dollars?": "b",
        "There are {a+b} animals on a farm, cows and goats. {a} are goats. How many "
        "are cows?": "b",
        "A shirt cost {a+b} dollars. It is {a} dollars cheaper now. What is its "
        "price now, in dollars?": "b",
        "{other} has {a+b} {things}, {a} more than {who}. How many {things} does "
        "{who} have?": "b",
        "A suit costs {a+b} dollars, and a coat {a} dollars less. How many dollars "
        "is the coat?": "b",
        "There are {a} shelves with {b} books on each. How many books are "
        "there?": "a*b",
        "{a} vans carry {b} people each. How many people can ride in them?": "a*b",
        "{who} reads {a} pages a night. How many pages has {he} read after {b} "
        "nights?": "a*b",
        "Every box holds {a} {things}. How many {things} do {b} boxes hold?": "a*b",
        "A garden has {a} rows, and {b} flowers grow in each row. How many flowers "
        "are in the garden?": "a*b",
        "{who} is paid {a} dollars for every car that {he} washes. How many dollars "
        "does {he} get for {b} cars?": "a*b",
        "{who} swims {a} laps a day for {b} days. How many laps is that in all?": "a*b",
        "{who} has {a} {things}. {other} has {b} times as many. How many {things} "
        "does {other} have?": "a*b",
        "{who} splits {a*b} {things} into {a} equal groups. How many are in each "
        "group?": "b",
        "{a*b} people go to the lake by bus, {a} in each bus. How many buses are "
        "needed?": "b",
        "{who} puts {a} dollars into an empty box each week. After how many weeks "
        "are {a*b} dollars in it?": "b",
        "{who} keeps {a*b} {things} in {a} equally full {places}. How many {things} "
        "are in each?": "b",
        "A teacher hands out {a*b} sheets to {a} pupils, all the same number. How "
        "many sheets does each pupil get?": "b",
        "{who} reads a book of {a*b} pages in {a} days, the same number each day. "
        "How many pages does {he} read a day?": "b",
        "Tickets cost {a} dollars each. How many tickets can {who} buy with {a*b} "
        "dollars?": "b",
        "{who} has {a+b} red {things} and {c} blue ones. {He} {loses} {a} of the red "
        "ones. How many red {things} are left?": "b",
        "{who} paid {c} dollars for {a} pens and {d} dollars for {b} rulers. How "
        "many pens and rulers did {he} buy in all?": "a+b",
        "{who} paid {a} dollars for {c} pens and {b} dollars for {d} rulers. How "
        "many dollars did {he} spend?": "a+b",
        "{who} ran {a} miles and {other} ran {c} miles in May. In June {who} ran {b} "
        "miles. How many miles did {who} run in the two months?": "a+b",
        "{who} has {a} {places} with {b} {things} in each. {other} has {c} {places}. "
        "How many {things} does {who} have?": "a*b",
        "A class of {c} pupils has {a+b} books. {a} of the books are lent out. How "
        "many books are not?": "b",
        "{who} picked {a+b} roses and {c} tulips, and gave {a} of the roses away. "
        "How many roses does {he} still have?": "b",
        "A store sold {a} cakes and {c} pies on Friday, and {b} cakes on Sunday. How "
        "many cakes were sold?": "a+b",
        "{who} had {a} coins. {He} found some on a walk of {c} miles, and then had "
        "{a+b}. How many coins did {he} find?": "b",
        "{who} gave {a} {things} to each of {b} cousins, and {c} to a neighbor. How "
        "many {things} did the cousins get?": "a*b",
    },
    2: {
        "{who} has {a} {things}. {who} {gets} {b+c} more and then {loses} {c}. How "
        "many {things} does {who} have now?": "a+b",
        "{who} has {a} {places} with {b} {things} in each. There are {c} more "
        "{things} on the table. How many {things} are there?": "a*b+c",
        "{who} has {a} {things}. {other} has {b} {things} more than {who}. How many "
        "{things} do they have together?": "a+a+b",
        "{who} has {a*b+c} {things}. {who} keeps {c} and shares the rest equally "
        "among {a} friends. How many {things} does each friend get?": "b",
        "{who} buys {a} {things} for {b} dollars each and a bag for {c} dollars. How "
        "many dollars does {who} spend?": "a*b+c",
        "{who} has {a+b+c} {things}. {who} {loses} {a} of them and then {loses} {b} "
        "more. How many {things} are left?": "c",
        "{who} has {a} {things} and {gets} {b} more. Then {other} brings {c}. How "
        "many {things} are there now?": "a+b+c",
        "There are {a} birds in one tree and {b+c} in another. {c} of all these "
        "birds fly away. How many stay?": "a+b",
        "{who} has {a+b+c} dollars. A shirt costs {a} dollars and a cap {b}. How "
        "many dollars are left if {who} buys both?": "c",
        "{who} buys {a} {things} for {b} dollars each and pays with {a*b+c} dollars. "
        "How many dollars does {who} get back?": "c",
        "{who} bakes {a} trays of {b+c} rolls. On every tray {c} of them burn. How "
        "many rolls are not burnt?": "a*b",
        "A tank holds {a+b} gallons of water. {a} gallons leak out, and then {who} "
        "pours in {c}. How many gallons are in the tank?": "b+c",
        "{who} mows {a} lawns for {b} dollars each and had {c} dollars before. How "
        "many dollars does {who} have now?": "a*b+c",
        "{who} lays {a*b} {things} into {a} equal piles and adds {c} to the first. "
        "How many {things} are in the first pile?": "b+c",
        "A team scores {a} goals in its first game, {b} in the next and {c} in the "
        "last. How many goals is that?": "a+b+c",
        "{who} has {a} {things}. {other} has {b} times as many. How many {things} do "
        "they have together?": "a+a*b",
        "{who} has {a+b} {things}, which is {b} more than {other} has. How many "
        "{things} do they have together?": "a+b+a",
        "A baker makes {a} cakes before noon and {b} after noon, every day. How many "
        "cakes is that in {c} days?": "a*c+b*c",
        "{who} has {a+b} {things}, {loses} {a} and finds {c}. How many {things} does "
        "{who} have in the end?": "b+c",
        "{who} needs {a*b+c} dollars for a bike and has {c}. How many days must "
        "{who} work for {b} dollars a day?": "a",
        "There are {a+b+c} {things} in a chest. {a} are old, {b} are broken, and the "
        "others are new. How many are new?": "c",
        "{who} started with {a+b+c} {things}, then gave {a} to {other} and {b} to a "
        "neighbor. How many does {he} still have?": "c",
        "A bakery made {a} pies and {b+c} tarts. By noon {c} of them were sold. How "
        "many were left?": "a+b",
        "{who} has {c} {things} and buys {a} packs with {b} in each. How many "
        "{things} does {he} have now?": "a*b+c",
        "There are {a} tables with {b} plates on each, and {c} plates in the sink. "
        "How many plates are there?": "a*b+c",
        "{who} pays for {a} tickets at {b} dollars each and for parking at {c} "
        "dollars. What does {he} pay in total, in dollars?": "a*b+c",
        "{who} has {a+b} {things}. {other} has {a} fewer. How many {things} do they "
        "have together?": "a+b+b",
        "{a*b} {things} are shared equally among {a} friends. {who}, one of them, "
        "already had {c}. How many does {he} have now?": "b+c",
        "{who} cooks {a} pots of soup, each for {b} guests, and one more for {c} "
        "guests. How many guests can eat?": "a*b+c",
        "A lake had {a+b+c} swans. {a} left in May and {b} in June. How many "
        "stayed?": "c",
        "{who} draws {a} pictures in March, {b} in April and {c} in May. How many "
        "pictures does {he} draw?": "a+b+c",
        "Each of {a} boys and {b} girls gets {c} {things}. How many {things} are "
        "needed?": "a*c+b*c",
        "A bookcase has {a} shelves of {b+c} books. {who} takes {c} books from every "
        "shelf. How many are left?": "a*b",
        "{who} cuts {a} pieces of {b} feet from a cable of {a*b+c} feet. How many "
        "feet are left?": "c",
        "{who} has {a*b+c} {things}, {c} of them damaged. {He} puts the good ones "
        "into {places} of {a} each. How many {places} does {he} fill?": "b",
        "{who} had {a} {things}, bought {b} and was given {c}. How many does {he} "
        "have?": "a+b+c",
        "Of {a+b+c} pupils, {a} come by bus and {b} on foot. The others ride bikes. "
        "How many ride bikes?": "c",
        "{who} reads {a} pages on each of {b} days, and {c} pages on the day after "
        "that. How many pages does {he} read?": "a*b+c",
        "{who} buys a lamp for {a} dollars and {b} bulbs for {c} dollars each. How "
        "many dollars does {he} spend?": "a+b*c",
        "There are {a+b} {things} in one drawer and {c} in another. {who} takes {a} "
        "out of the first. How many are left in both?": "b+c",
        "{who} gets {a} dollars from {his} father and {b+c} from {his} mother, and "
        "spends {c} of them. How many dollars does {he} keep?": "a+b",
        "{other} has {a} {things}. {who} has {b} times as many and {c} more. How "
        "many {things} does {who} have?": "a*b+c",
        "{who} had {a+b} red and {c} blue {things}, and lost {a} of the red ones. "
        "How many {things} does {he} have now?": "b+c",
        "A path is {a+b+c} miles long. {who} walked {a} miles of it before lunch and "
        "{b} after. How many miles are left?": "c",
    },
    3: {
        "{who} has {a} {places} with {b} {things} in each. {who} {gets} {c+d} more "
        "{things} and then {loses} {d}. How many {things} does {who} have "
        "now?": "a*b+c",
        "{who} has {a} {things}. {other} has {b} more than {who}. They find {c} "
        "more. How many {things} do they have together?": "a+a+b+c",
        "{who} has {a+c} {things} and {other} has {b+d} {things}. {who} {loses} {c} "
        "and {other} {loses} {d}. How many {things} do they have together?": "a+b",
        "{who} buys {a} {things} for {b} dollars each and {c} mugs for {d} dollars "
        "each. How many dollars does {who} spend?": "a*b+c*d",
        "There are {a+b} ducks on a pond. {a} fly off, then {c} come, and {d} more "
        "follow. How many ducks are on the pond?": "b+c+d",
        "{who} has {a+b+c+d} dollars and spends {a} on food, {b} on a toy and {c} on "
        "a gift. How many dollars are left?": "d",
        "{who} sells {a} {things} for {b} dollars each, and had {c+d} dollars "
        "before. Then {who} pays {d} dollars for a hat. How many dollars does {who} "
        "have now?": "a*b+c",
        "One room has {a} tables with {b} chairs each, another has {c} tables with "
        "{d} chairs each. How many chairs are in both?": "a*b+c*d",
        "{who} has {a*b+c+d} {things}, gives {c} to {other} and {d} to a neighbor, "
        "and shares the rest equally among {a} friends. How many {things} does each "
        "friend get?": "b",
        "On Monday {who} runs {a} miles, on Tuesday {b} miles more than on Monday, "
        "and on Friday {c} miles. How many miles does {who} run?": "a+a+b+c",
        "{who} has {a+b+c+d} {things}, gives {a} to {other} and {b} to a neighbor, "
        "and loses {c}. How many are left?": "d",
        "{who} fills {a} {places} with {b} {things} each. {He} adds {c} more, and "
        "{other} brings {d}. How many {things} are there?": "a*b+c+d",
        "A theater has {a} rows of {b} seats and a balcony with {c+d} seats. {d} of "
        "those on the balcony are broken. How many seats can be used?": "a*b+c",
        "{who} picks {a} apples, {b} pears and {c+d} plums, and eats {d} of the "
        "plums. How many fruits are left?": "a+b+c",
        "On each of {a} days a stall sells {b} cups of tea and {c} of coffee. On the "
        "day after that it sells {d} cups. How many cups does it sell?": "a*b+a*c+d",
        "{who} has {a} {things}, and {other} {b} times as many. They find {c} more. "
        "How many {things} do they have together?": "a+a*b+c",
        "A chest holds {a+b} red and {c+d} blue {things}. {a} of the red and {c} of "
        "the blue ones are damaged. How many are not?": "b+d",
        "A baker bakes {a*b+c+d} rolls, burns {c}, eats {d}, and puts the rest into "
        "bags of {a}. How many bags does the baker fill?": "b",
        "{who} buys {a} pens for {b} dollars each and a book for {c} dollars, and "
        "pays with {a*b+c+d} dollars. How many dollars does {he} get back?": "d",
        "There were {a} people in a shop. {b+c} came in, {c} went out, and then {d} "
        "more came. How many were there in the end?": "a+b+d",
        "{who} walks {a} miles, rides {b} miles, and then takes a bus for {c} hours "
        "at {d} miles an hour. How many miles does {he} go?": "a+b+c*d",
    },
}
_HELD_OUT = {
    1: {
        "Yesterday {who} picked {a} {things}, and today {who} picked {b}. How many "
        "{things} did {who} pick in these two days?": "a+b",
        "A shop had {a+b} {things} in the morning. During the day {a} were sold. "
        "How many {things} does the shop still have?": "b",
        "Each of {a} children brings {b} {things} to school. How many {things} do "
        "the children bring altogether?": "a*b",
        "A worker packs {a*b} {things} into {a} {places}, the same number into "
        "each. How many {things} go into one of them?": "b",
        "{who} is {a} years old, and {other} is {b} years older than {who}. How "
        "old is {other}?": "a+b",
        "{who} read {a+b} pages and {other} read {a} pages. How many more pages "
        "did {who} read than {other}?": "b",
    },
    2: {
        "A farmer picks {a} {things} in the morning and {b+c} in the afternoon, "
        "but {c} of them are bad. How many good {things} does the farmer "
        "have?": "a+b",
        "{who} earns {a} dollars an hour and works for {b} hours. A guest leaves "
        "{who} {c} dollars besides. How many dollars does {who} have?": "a*b+c",
        "There are {a+b} people on a bus. At the next stop {a} people get off and "
        "{c} get on. How many people are on the bus now?": "b+c",
        "{who} has {a} red, {b} blue and {c} green {things}. How many {things} "
        "does {who} have?": "a+b+c",
    },
    3: {
        "{who} saves {a} dollars a week for {b} weeks and gets {c+d} dollars from "
        "an aunt. A game costs {d} dollars. How many dollars are left after {who} "
        "buys it?": "a*b+c",
        "A class of {a} girls and {b+c} boys goes to the zoo. {c} boys are ill and "
        "stay at home, but {d} parents come along. How many people go?": "a+b+d",
    },
}

# Stories with their questions, and the answer of each, which is one step: what else is
# named does not matter to it, what was there at first is asked for, or the larger of
# two numbers comes last.
_TRAIN_STORIES = {
    "{who} has {a+b} {things} and {c+d} {others}. {He} {loses} {a} {things} and {c} "
    "{others}.": {
        "How many {things} does {he} have left?": "b",
        "How many {others} does {he} have left?": "d",
        "How many {things} and {others} did {he} have at first?": "a+b+c+d",
    },
    "In a harbor lie {a} ships and {b} boats. {c} more ships and {d} more boats come "
    "in.": {
        "How many ships are in the harbor now?": "a+c",
        "How many boats are in the harbor now?": "b+d",
        "How many ships and boats came in?": "c+d",
    },
    "{who} walked {a+b} miles on Monday, {c} miles on Tuesday and {a} miles on "
    "Wednesday.": {
        "How many miles did {he} walk on Tuesday and Wednesday?": "a+c",
        "How many miles did {he} walk on Monday and Tuesday?": "a+b+c",
        "How many miles more did {he} walk on Monday than on Wednesday?": "b",
    },
    "{who} {gets} {a} {things}, and now {he} has {a+b} {things} and {c} {others}.": {
        "How many {things} did {he} have before?": "b",
        "How many {things} and {others} does {he} have now?": "a+b+c",
    },
    "{who} took {a} {things} and {c} {others} out of a trunk. Now {b} {things} are in "
    "it.": {
        "How many {things} were in the trunk before?": "a+b",
        "How many {things} and {others} did {he} take out?": "a+c",
    },
    "{who} has read {a} of the {a+b} novels and {c} of the {c+d} comics on a shelf.": {
        "How many of the novels has {he} not read?": "b",
        "How many of the comics has {he} not read?": "d",
        "How many novels and comics has {he} read?": "a+c",
    },
    "{who} has {a} {things} and {c} {others}, but needs {a+b} {things}.": {
        "How many {things} are missing?": "b",
        "How many {things} and {others} does {he} have?": "a+c",
    },
    "A farm has {a} cows, {a+b} sheep and {c} pigs.": {
        "How many more sheep than cows are there?": "b",
        "How many cows and pigs are there?": "a+c",
        "How many sheep and pigs are there?": "a+b+c",
    },
    "{a} {places} hold {b} {things} each, and {c} other {places} are empty.": {
        "How many {things} are there?": "a*b",
        "How many {places} are there?": "a+c",
    },
    "{who} puts {a*b} {things} into {a} equal heaps and {c*d} {others} into {c} equal "
    "heaps.": {
        "How many {things} are in each of their heaps?": "b",
        "How many {others} are in each of their heaps?": "d",
        "How many heaps are there?": "a+c",
    },
    "A ticket costs {a} dollars and a drink costs {c} dollars.": {
        "How many dollars do {b} tickets cost?": "a*b",
        "How many dollars do {b} drinks cost?": "b*c",
        "How many dollars do a ticket and a drink cost?": "a+c",
    },
    "{a+b} cars and {c+d} vans stood in a garage. {a} cars and {c} vans drove off.": {
        "How many cars are still there?": "b",
        "How many vans are still there?": "d",
        "How many cars and vans drove off?": "a+c",
    },
    "{who} is {a+b} years old now, and {other} is {c}.": {
        "How old was {who} {a} years ago?": "b",
        "How old will {other} be in {d} years?": "c+d",
    },
    "At a station {a} people left a train of {c} cars, and {a+b} people boarded it.": {
        "How many more people boarded than left?": "b",
    },
    "{who} swims {a} laps and {other} {c} laps every day.": {
        "How many laps does {who} swim in {b} days?": "a*b",
        "How many laps does {other} swim in {b} days?": "b*c",
        "How many laps do they swim together in one day?": "a+c",
    },
    "It is {a} miles to the village and {a+b} miles to the city. A bus goes {c} times "
    "a day.": {
        "How many miles farther is it to the city than to the village?": "b",
    },
    "{a} {things} are left of the {a+b} {things} that {who} bought for {c} dollars.": {
        "How many {things} are gone?": "b",
    },
    "In {c} hours {who} filled {a} {places}, all alike, with {a*b} {things} in all.": {
        "How many {things} are in each of the {places}?": "b",
    },
    "{who} sold {a} {things} and {other} sold {a+b} {things}, for {c} dollars each.": {
        "How many more {things} did {other} sell than {who}?": "b",
        "How many {things} did they sell together?": "a+a+b",
    },
    "After paying {a} dollars for {c} {things}, {who} still has {b} dollars.": {
        "How many dollars did {he} have before?": "a+b",
    },
    "A camp has {a+b} tents and {c} huts. {a} of the tents are taken.": {
        "How many tents are free?": "b",
        "How many tents and huts does the camp have?": "a+b+c",
    },
    "{who} gave {b} {things} to each of {a} children and kept {c} {things}.": {
        "How many {things} did {he} give away?": "a*b",
    },
    "{who} keeps {c} {others} and shares {a*b} {things} equally among {a} children.": {
        "How many {things} does each child get?": "b",
    },
    "There were {a} {things} and {c} {others} in a drawer. {who} put in some more "
    "{things}, and now there are {a+b} {things}.": {
        "How many {things} did {he} put in?": "b",
        "How many {things} and {others} were in the drawer before?": "a+c",
    },
    "{who} had {a+b} {things} and {other} had {c}. {who} gave some away, and now {he} "
    "has {b}.": {
        "How many {things} did {who} give away?": "a",
        "How many {things} did they have together at first?": "a+b+c",
    },
    "{who} had some {things}. {He} {gets} {a} more. Now {he} has {a+b} {things}.": {
        "How many {things} did {he} have at first?": "b",
    },
    "{who} had some {things}. {He} {loses} {a} of them. Now {he} has {b} {things}.": {
        "How many {things} did {he} have at first?": "a+b",
    },
    "{who} has seen {a} films this year. {He} wants to see {a+b} films in {c} "
    "months.": {
        "How many more films does {he} want to see?": "b",
    },
}
_HELD_OUT_STORIES = {
    "{who} painted {a+b} doors and {c} windows. {a} of the doors are blue.": {
        "How many of the doors are not blue?": "b",
    },
    "{a} wolves and {b} bears live in a forest. {c} more wolves come to live there.": {
        "How many wolves live in the forest now?": "a+c",
        "How many wolves and bears were there at first?": "a+b",
    },
    "Some {things} lay on a bench. {who} brought {a} more, and then there were "
    "{a+b}.": {
        "How many {things} lay on the bench at the start?": "b",
    },
    "{who} rode {a} miles, had a rest of {c} hours, and rode {b} miles more.": {
        "How many miles did {he} ride?": "a+b",
    },
    "{a} nests have {b} eggs each, and {c} nests have no eggs.": {
        "How many eggs are there?": "a*b",
    },
    "{who} sent {a} letters and {other} sent {a+b} letters, to {c} towns.": {
        "How many more letters did {other} send than {who}?": "b",
    },
}


def _by_level(
    steps: dict[int, dict[str, str]], stories: dict[str, dict[str, str]]
) -> dict[int, dict[str, str]]:
    told = {
        f"{story} {question}": answer
        for story, questions in stories.items()
        for question, answer in questions.items()
    }
    return steps | {4: steps[1], 5: told}


_TEMPLATES = {
    "train": _by_level(_TRAIN, _TRAIN_STORIES),
    "held_out": _by_level(_HELD_OUT, _HELD_OUT_STORIES),
}


def problems(
    *,
    split: str,
    count: Count,
    levels: tuple[int, ...] = (1, 2, 3),
    most: Annotated[int, Range(4)] = 20,
    seed: int = 0,
) -> list[Problem]:
    """Draws word problems, no two of them alike.

    Args:
      split: "train" or "held_out", which have no template in common.
      count: of problems, as evenly over the levels as it goes.
      levels: any of 1 to 5. 1, 2 and 3 are the number of steps; 4 is one step with
        larger numbers; 5 is one step with larger numbers in a story that names more
        than its question needs.
      most: numbers are drawn from 2 to this, at levels 4 and 5 to ten times as much,
        small ones as often as large (evenly in their logarithm); those that are
        multiplied to half of it. Sums of them may be larger.
      seed: of the draws.

    Raises:
      ValueError: another split, other levels, or more problems than there are.
    """
    if split not in _TEMPLATES or not set(levels) <= {1, 2, 3, 4, 5} or not levels:
        raise ValueError(
            f"split={split!r}, levels={levels!r}: the splits are train and held_out,"
            " the levels 1 to 5"
        )
    rng, found = generator(seed), dict[str, Problem]()
    for _ in range(20 * count):
        if len(found) == count:
            break
        level = levels[len(found) % len(levels)]
        text, answer, number = _draw(_TEMPLATES[split][level], most, level >= 4, rng)
        found.setdefault(
            text,
            Problem(
                id=f"{split}-{level}-{most}-{len(found)}",
                problem=text,
                answers=(answer,),
                source="words",
                level=level,
                meta={"template": f"{split}-{level}-{number}"},
            ),
        )
    if len(found) < count:
        raise ValueError(f"count={count}: only {len(found)} different problems found")
    return list(found.values())


def _draw(
    templates: dict[str, str], most: int, larger: bool, rng: np.random.Generator
) -> tuple[str, str, int]:
    """Returns a problem's text, its answer and the number of its template."""
    index = int(rng.integers(len(templates)))
    template = list(templates)[index]
    who, other = rng.choice([*_NAMES], 2, replace=False).tolist()
    words = {key: str(rng.choice(of_key)) for key, of_key in _WORDS.items()}
    he, his = ("he", "his") if _NAMES[who] == "he" else ("she", "her")
    words |= {"who": who, "other": other, "he": he, "He": he.title(), "his": his}
    things = _WORDS["things"]
    words["others"] = things[things.index(words["things"]) - 1]
    multiplied = set("".join(re.findall(r"\w\*\w", template + templates[template])))

    def number(most: int) -> int:
        if larger:
            return int(2 * (5 * most + 0.5) ** rng.random())
        return int(rng.integers(2, most + 1))

    numbers = {
        name: number(most // 2 if name in multiplied else most) for name in "abcd"
    }

    def value(expression: str) -> str:
        # Our own expressions, in four numbers.
        return words.get(expression) or str(eval(expression, {}, numbers))

    text = re.sub(r"\{(.*?)\}", lambda slot: value(slot[1]), template)
    return text, value(templates[template]), index


def _read_held_out() -> None:
    """Adds words_held_out.txt: lines "ANSWER | TEXT" below a "[SPLIT LEVEL]"."""
    name = f"{__file__.removesuffix('.py')}_held_out.txt"
    with open(name, encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("["):
                split, level = line.strip("[]\n").split()
            else:
                answer, _, text = line.strip().partition(" | ")
                _TEMPLATES[split][int(level)][text] = answer


_read_held_out()
